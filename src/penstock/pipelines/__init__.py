"""Data pipelines as files: topics to topics, to tables and back, on Spark.

    from penstock.pipelines import load

    pipeline = load("orders.yaml", environment="prod")

The way of a file: `documents` (YAML with places), `environments` (overlays and parameters), `binding` (to the classes
of `model`), `checking` (what fields say together, over `analysis` and `sql`), `planning` (the queries it runs as).
Nothing on it imports Spark. Names are imported when they are used.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "Decoding": "model",
    "Duration": "durations",
    "Encoding": "model",
    "Expectation": "model",
    "FormatSink": "model",
    "FormatSource": "model",
    "Pipeline": "model",
    "PipelineFailed": "problems",
    "PipelineInvalid": "problems",
    "PipelineTest": "model",
    "Problem": "problems",
    "Restart": "model",
    "Secret": "secrets",
    "Step": "model",
    "TopicSink": "model",
    "TopicSource": "model",
    "Watermark": "model",
    "load": "loading",
    "validate": "validating",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
