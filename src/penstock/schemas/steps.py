"""Comparisons of two schemas that are as deep as the schemas are, without Python's stack, and that end.

A comparison is a generator: it yields another comparison and is sent its result. Schemas may be recursive and may nest
by name a thousand deep, so the generators wait on a list instead of the stack; every comparison counts as a step, and a
pair of schemas that takes too many is not comparable.

A pair of types that is being compared counts as compatible where it is met again. A pair that turns out to be
incompatible takes back what was concluded from that; what was found incompatible is so for good, because fewer
assumptions never make a pair compatible.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

# One to two seconds.
MAX_STEPS = 1_000_000
# A type that cannot be read may be used in as many places as there are paths to it: a few of them will do.
MAX_FOUND = 100
_MAX_PATH = 500

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


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """What a reader cannot read: where it is in the schema, the name of the rule, and what it means here."""

    path: str
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.path or '/'}: {self.detail}"


Found = Sequence[Incompatibility]


def shortened(path: str) -> str:
    """A path that does not grow with the depth of recursion by name."""
    return path if len(path) <= _MAX_PATH else f"{path[:_MAX_PATH]}..."


class Pairs:
    """Verdicts about pairs of types, each found once."""

    def __init__(self) -> None:
        self._verdicts: dict[Hashable, Found] = {}
        # The pairs that are compatible so far, in the order in which their comparison began.
        self._compatible: list[Hashable] = []

    def verdict(self, pair: Hashable, compare: Callable[[], Comparison[Found]]) -> Comparison[Found]:
        known = self._verdicts.get(pair)
        if known is not None:
            return known
        before = len(self._compatible)
        self._verdicts[pair] = ()
        self._compatible.append(pair)
        found: Found = yield compare()
        if found:
            found = tuple(dict.fromkeys(found))[:MAX_FOUND]
            for assumed in self._compatible[before:]:
                del self._verdicts[assumed]
            del self._compatible[before:]
            self._verdicts[pair] = found
        return found
