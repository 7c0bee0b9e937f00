"""Where Spark looks for the format "penstock" when nobody registered it."""

from __future__ import annotations

from penstock.spark.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
