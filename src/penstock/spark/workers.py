"""Exempts the imports of Spark's Python workers from garbage collection between tasks.

A worker that Spark keeps runs a full garbage collection after every task. With numba and Arrow imported that takes 0.1
s of a core, for each of the two workers that a task of a topic-to-topic query has: longer than everything else in a
small batch. Imported modules stay until the process ends, so after the worker's first tasks they are exempt from
collection, and collecting what later tasks leave takes a millisecond.
"""

from __future__ import annotations

import gc

_known: set[str] = set()


def exempt_imports(kind: str) -> None:
    """Call it at the end of a task: the first task of a kind in this process has imported everything it needs."""
    if kind not in _known:
        _known.add(kind)
        gc.collect()
        gc.freeze()
