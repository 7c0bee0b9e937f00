"""The time and the network of the simulated quorum, and their faults."""

from __future__ import annotations

from random import Random
from typing import Final

MILLISECOND: Final = 1000
SECOND: Final = 1000 * MILLISECOND
ORDINARY_DELAY_MAX: Final = 5 * MILLISECOND


class Clock:
    """In milliseconds; may run too fast or too slow, and jump."""

    def __init__(self, speed_percent: int, offset_ms: int) -> None:
        self.speed_percent = speed_percent
        self.offset_ms = offset_ms

    def at(self, time: int) -> int:
        return time * self.speed_percent // (100 * MILLISECOND) + self.offset_ms

    def when(self, milliseconds: int) -> int:
        """The first moment at which the clock shows this time."""
        return -(-(milliseconds - self.offset_ms) * 100 * MILLISECOND // self.speed_percent)


class Network:
    """The open links, and how unreliable they are."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.blocked: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.doubling = 0.0
        self.slowness = 0.0

    def heal(self) -> None:
        self.blocked.clear()
        self.loss = self.doubling = self.slowness = 0.0

    def delays(self, source: int, target: int) -> list[int]:
        """When the copies of a message arrive; none if it is lost."""
        if (source, target) in self.blocked or self._random.random() < self.loss:
            return []
        copies = 2 if self._random.random() < self.doubling else 1
        return [self._delay() for _ in range(copies)]

    def _delay(self) -> int:
        delay = self._random.randint(300, ORDINARY_DELAY_MAX)
        if self._random.random() < self.slowness:
            delay += self._random.randint(0, 400 * MILLISECOND)
        return delay
