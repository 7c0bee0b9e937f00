"""Where Spark looks for the format "penstock" when it is not registered."""

from __future__ import annotations

from penstock.spark.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
