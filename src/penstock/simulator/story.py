"""What a campaign needs to know of a story: its name, what has to happen in it, and how one seed of it ended."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.simulator.moments import Pair


class Violation(AssertionError):
    """A checker's verdict."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class StoryResult(NamedTuple):
    violation: str | None
    events: Counter[str]
    trace_hash: str  # the same for the same seed, whatever the hashes of Python's strings are
    recent: Sequence[str] = ()  # what happened last, readable
    critical: frozenset[Pair] = frozenset()  # the faults that struck at critical moments


class Story(NamedTuple):
    """`play` tells the story of one seed from beginning to end: the same seed gives the same run, to the last message.
    Each of `events` has to happen in a campaign of many seeds, or it has not tried what it claims to; and each fault
    of `critical` at its moment."""

    name: str
    about: str
    events: tuple[str, ...]
    play: Callable[[int], StoryResult]
    critical: Mapping[str, tuple[str, ...]]

    def critical_pairs(self) -> Iterator[Pair]:
        for moment, faults in self.critical.items():
            for fault in faults:
                yield Pair(moment, fault)


def replay_command(name: str, seed: int) -> str:
    return f"python -m penstock.simulator --story {name} --seed {seed}"


def quietly() -> None:
    """Crashes on purpose are no news."""
    for name in ("penstock", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
