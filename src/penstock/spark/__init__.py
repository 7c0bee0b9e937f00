"""Reads and writes topics in Spark: a source, an exactly-once sink, and a session that needs only PyPI packages.

    from penstock.spark import session

    spark = session("orders")
    spark.readStream.format("penstock").option("subscribe", "orders").load()

Heavy modules are imported when they are used, because executors import this package, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.runtime.session import session

if TYPE_CHECKING:
    from penstock.spark.progress.listener import watch
    from penstock.spark.progress.query_progress import QueryProgress
    from penstock.spark.progress.topic import queries

__all__ = ["QueryProgress", "queries", "session", "watch"]

_HOMES = {
    "Pipeline": "penstock.pipelines",  # it depends on this package; users get pipelines in Python from here
    "QueryProgress": "penstock.spark.progress.query_progress",
    "queries": "penstock.spark.progress.topic",
    "watch": "penstock.spark.progress.listener",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
