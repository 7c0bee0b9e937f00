"""Deadlines by key, where most are moved away before they are due.

Ten thousand members move their deadline with every heartbeat. So moving one later is a dictionary write: the heap keeps
the old, earlier entry, and finds out when that comes up that there is more time. The heap holds at most one live entry
a key, and what is cancelled leaves it when its time comes.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class TimerKey(NamedTuple):
    """What is due, for which group, and for which of its members (empty: for the group as a whole)."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class Timers:
    def __init__(self) -> None:
        self._due: dict[TimerKey, int] = {}
        # When the entry of a key in the heap comes up: never later than the key is due.
        self._queued: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._due

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: TimerKey, at_ms: int) -> None:
        self._due[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or queued > at_ms:
            self._queue(key, at_ms)

    def set_unless_running(self, key: TimerKey, at_ms: int) -> None:
        if key not in self._due:
            self.set(key, at_ms)

    def cancel(self, key: TimerKey) -> None:
        self._due.pop(key, None)

    @property
    def deadline_ms(self) -> int | None:
        """When `pop` should be called next. It may then find that nothing is due yet."""
        while self._heap:
            at_ms, key = self._heap[0]
            if self._queued.get(key) == at_ms and key in self._due:
                return at_ms
            self._drop_first()
        return None

    def pop(self, now_ms: int) -> TimerKey | None:
        """One key that is due, which then runs no more."""
        while self._heap and self._heap[0][0] <= now_ms:
            key = self._drop_first()
            due_ms = self._due.get(key) if key is not None else None
            if key is None or due_ms is None:
                continue
            if due_ms > now_ms:
                self._queue(key, due_ms)
                continue
            del self._due[key]
            return key
        return None

    def _queue(self, key: TimerKey, at_ms: int) -> None:
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))

    def _drop_first(self) -> TimerKey | None:
        """The first entry's key; None if a later, earlier entry took its place."""
        at_ms, key = heapq.heappop(self._heap)
        if self._queued.get(key) != at_ms:
            return None
        del self._queued[key]
        return key
