"""Reads a cluster: the sampler that all pages share, records of topics, pipelines, schemas. All of it blocks."""
