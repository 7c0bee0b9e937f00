"""Data pipelines declared in files: from topics to topics, to tables and back, on Spark.

    from penstock.pipelines import load

    pipeline = load("orders.yaml", environment="prod")

`spec` reads a file: `documents` (YAML with positions), `environments` (overlays and parameters), `binding` (to the
classes of `model`). `check` finds errors in it and plans its queries. Neither imports Spark. `engine` runs it on Spark,
`sinks` writes its tables, `operate` observes and controls it from outside. Names are imported when they are used; type
checkers read them in `__init__.pyi`.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "Decoding": "spec.model",
    "Duration": "spec.durations",
    "Encoding": "spec.model",
    "Expectation": "spec.model",
    "FormatSink": "spec.model",
    "FormatSource": "spec.model",
    "Pipeline": "spec.model",
    "PipelineFailed": "spec.problems",
    "PipelineInvalid": "spec.problems",
    "PipelineTest": "spec.model",
    "Problem": "spec.problems",
    "Restart": "spec.model",
    "Secret": "spec.secrets",
    "Step": "spec.model",
    "TopicSink": "spec.model",
    "TopicSource": "spec.model",
    "Watermark": "spec.model",
    "load": "spec.loading",
    "validate": "check.validate",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
