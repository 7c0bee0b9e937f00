"""What a campaign needs of a story: its name, the events that must happen, and the result of one seed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.simulator.moments import Pair


class Violation(AssertionError):
    """Raised when a checker finds a broken law."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class StoryResult(NamedTuple):
    violation: str | None
    events: Counter[str]
    trace_hash: str  # the same for the same seed, whatever the hashes of Python's strings are
    recent: Sequence[str] = ()  # the last events, readable
    critical: frozenset[Pair] = frozenset()  # the faults that struck at critical moments


class Story(NamedTuple):
    """`play` runs one seed of the story from beginning to end: the same seed gives the same run, to the last message.
    In a campaign of many seeds each of `events` must happen, and each fault of `critical` at its moment; otherwise the
    campaign did not test what it claims to test."""

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
    """Do not log intended crashes."""
    for name in ("penstock", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
