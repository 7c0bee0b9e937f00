"""The fetches that wait for a change of a partition, and their wake-ups.

Consumers wait for the high watermark to move (`Replica.waiting_fetches`); followers watch the log itself
(`Replica.watchers`). Waiting fetches are woken when all connections that were readable together have been read
(`Wakeups.run`), so that produce requests of many connections lead to one fetch reply, not many.

An answer to a follower costs more than the records in it: it wakes the follower, which fetches again. So a follower's
fetch is held for as long as each turn of the loop brings more records, and answered in the first turn that brings none.
Where nothing else arrives, that costs one look at the sockets. A few turns or about a millisecond are the most: the
followers should work while this broker does.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from penstock.model.ownership import owned_by_loop

HELD_TURNS_MAX: Final = 8
HELD_S_MAX: Final = 0.0005  # the time of the loop goes in milliseconds


class WaitingFetch(Protocol):
    def data_arrived(self, size: int) -> bool:
        """`size` more bytes can be read; returns true if that may be enough."""
        ...

    def wake(self) -> None: ...


class Watcher(Protocol):
    """A follower's position in its fetch session; registered with a replica as long as the follower fetches from it."""

    def appended(self, size: int) -> None:
        """`size` more bytes can be fetched."""
        ...

    def committed(self) -> None:
        """The high watermark moved."""
        ...

    def changed(self) -> None:
        """There may be other news: a new leader, a new log start offset."""
        ...

    def in_sync_changed(self, isr: frozenset[int]) -> None: ...


@owned_by_loop()
class Wakeups:
    """Waiting fetches that may now have enough data."""

    __slots__ = ("_due", "_held", "_held_since", "_is_growing", "_loop", "_turns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: dict[WaitingFetch, None] = {}
        self._held: dict[WaitingFetch, None] = {}
        self._held_since = 0.0
        self._is_growing = False  # in this turn of the loop, there was something to hold a fetch for
        self._turns = 0

    def add(self, waiting: WaitingFetch) -> None:
        self._due[waiting] = None

    def run(self) -> None:
        while self._due:
            due, self._due = self._due, {}
            for waiting in due:
                waiting.wake()

    def hold(self, waiting: WaitingFetch) -> None:
        """Records arrived for the fetch of a follower, and more may arrive in the next turns of the loop."""
        if not self._held:
            self._turns = 0
            self._held_since = self._loop.time()
            self._loop.call_soon(self._turn_ended)
        self._held[waiting] = None
        self._is_growing = True

    def _turn_ended(self) -> None:
        self._turns += 1
        if self._is_growing and self._turns <= HELD_TURNS_MAX and self._loop.time() - self._held_since < HELD_S_MAX:
            self._is_growing = False
            self._loop.call_soon(self._turn_ended)
            return
        held, self._held = self._held, {}
        self._is_growing = False
        for waiting in held:
            waiting.wake()
        self.run()
