"""Topics in Spark: a source, an exactly-once sink, and a session that needs nothing but PyPI.

from penstock.spark import session

spark = session("orders")
spark.readStream.format("penstock").option("subscribe", "orders").load()
"""

from __future__ import annotations

from penstock.spark.session import session

__all__ = ["session"]
