"""Data pipelines as files: topics to topics, to tables and back, on Spark."""
