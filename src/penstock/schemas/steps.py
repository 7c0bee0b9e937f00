"""Comparisons of two schemas that are as deep as the schemas are, without Python's stack, and that end.

A comparison is a generator: it yields another comparison and is sent its result. Schemas may be recursive and may nest
by name a thousand deep, so the generators wait on a list instead of the stack; every comparison counts as a step, and a
pair of schemas that takes too many is not comparable.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

MAX_STEPS = 1_000_000

T = TypeVar("T")
Comparison = Generator["Comparison[T]", T, T]


class TooManySteps(Exception):
    """The comparison was given up."""


def run(comparison: Comparison[T], max_steps: int = MAX_STEPS) -> T:
    waiting = [comparison]
    result: Any = None  # what a generator is sent first
    for _ in range(max_steps):
        try:
            waiting.append(waiting[-1].send(result))
            result = None
        except StopIteration as end:
            waiting.pop()
            result = end.value
            if not waiting:
                final: T = result
                return final
    raise TooManySteps
