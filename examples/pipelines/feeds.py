"""A step of feeds.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def once(orders: DataFrame) -> DataFrame:
    """Each order once, if it comes again no later than the watermark allows."""
    return orders.dropDuplicatesWithinWatermark(["channel", "number"])
