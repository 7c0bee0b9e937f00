"""What the campaign needs to know of a story: how it is called, what has to happen in it, and how one seed ended."""

from __future__ import annotations

import logging
from collections import Counter
from typing import NamedTuple, Protocol


class Outcome(NamedTuple):
    violation: str | None  # by the name of the checker that found it
    events: Counter[str]
    trace_hash: str  # the same for the same seed, whatever the hashes of Python's strings are


class Story(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def events(self) -> tuple[str, ...]:
        """Every one of these has to happen in a campaign, or it has not tried what it claims to."""
        ...

    def play(self, seed: int) -> Outcome: ...


def quietly() -> None:
    """Crashes on purpose are no news."""
    for name in ("penstock", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
