"""Avro: the schema as a graph of types, its texts, and the rules by which a reader resolves a writer."""
