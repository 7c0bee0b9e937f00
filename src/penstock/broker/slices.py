"""Runs deferrable work in slices of 5 ms; between slices the event loop is free for other work.

Work of many partitions at the same moment shares one slice: loads after a failover, ticks, deletions. Otherwise fifty
short steps would add up to a long one. A broker that takes over fifty partitions thus still answers meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.005

# Works until the given time of the event loop; returns true if it must be called again.
Work = Callable[[float], bool]


class Slices:
    """A first-in, first-out queue of work: each piece runs to its end before the next one starts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: deque[Work] = deque()
        self._is_due = False

    def add(self, work: Work) -> None:
        self._work.append(work)
        self._go_on_soon()

    def is_over(self, until: float) -> bool:
        return self._loop.time() >= until

    def once(self, step: Callable[[], None]) -> None:
        """Add a single short step."""

        def work(until: float) -> bool:
            step()
            return False

        self.add(work)

    def _go_on_soon(self) -> None:
        if self._work and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._slice)

    def _slice(self) -> None:
        self._is_due = False
        until = self._loop.time() + SLICE_S
        try:
            while self._work:
                work = self._work.popleft()
                if work(until):
                    self._work.appendleft(work)
                if self.is_over(until):
                    break
        finally:
            self._go_on_soon()
