"""Penstock: Kafka in Python, with data pipelines on Spark."""

__version__ = "0.1.0"
