"""Work that need not be done at once, in slices of a few milliseconds with the event loop free in between.

What many partitions have to do at the same moment, after a failover or when a topic is deleted, shares one slice:
otherwise fifty short steps would make a long one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.005

# Goes on until the given time of the event loop; true if it is to be called again.
Work = Callable[[float], bool]


class Slices:
    """One piece of work after the other, in the order they came."""

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
        """A short step."""

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
