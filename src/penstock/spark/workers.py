"""Spark's Python workers between two tasks.

A worker that Spark keeps runs a full garbage collection after every task. Once numba and Arrow are imported that takes
0.1 s of a core, for each of the two workers that a task of a query from topic to topic has: longer than everything else
in a small batch. What a process has imported stays until its end, so after its first tasks it is exempt from
collection, and what later tasks leave is collected in a millisecond.
"""

from __future__ import annotations

import gc

_known: set[str] = set()


def exempt_imports(kind: str) -> None:
    """At the end of a task: of the first of its kind in this process, everything was imported for it."""
    if kind not in _known:
        _known.add(kind)
        gc.collect()
        gc.freeze()
