"""Topics in Spark: a source, an exactly-once sink, and a session that needs nothing but PyPI."""
