"""Reads and writes topics in Spark: a source, an exactly-once sink, and a session that needs only PyPI packages.

    from penstock.spark import session

    spark = session("orders")
    spark.readStream.format("penstock").option("subscribe", "orders").load()

Heavy modules are imported when they are used, because executors import this package, too; type checkers read their
names in `__init__.pyi`.
"""

from __future__ import annotations

_HOMES = {
    "Pipeline": "penstock.pipelines",  # it depends on this package; users get pipelines in Python from here
    "QueryProgress": "penstock.spark.progress.query_progress",
    "queries": "penstock.spark.progress.topic",
    "session": "penstock.spark.runtime.session",
    "watch": "penstock.spark.progress.listener",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
