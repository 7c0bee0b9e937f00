"""The fetches that wait for a change of a partition, and their wake-ups.

Consumers wait for the high watermark to move (`Replica.waiting_fetches`); followers watch the log itself
(`Replica.watchers`). Waiting fetches are woken when all connections that were readable together have been read
(`Wakeups.run`), so that produce requests of many connections lead to one fetch reply, not many.
"""

from __future__ import annotations

from typing import Protocol

from penstock.model.ownership import owned_by_loop


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

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[WaitingFetch, None] = {}

    def add(self, waiting: WaitingFetch) -> None:
        self._due[waiting] = None

    def run(self) -> None:
        while self._due:
            due, self._due = self._due, {}
            for waiting in due:
                waiting.wake()
