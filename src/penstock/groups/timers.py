"""Timers by key, optimised for the case that most are postponed before they are due.

Ten thousand members postpone their deadline with every heartbeat. So postponing is a dictionary write: the heap keeps
the old, earlier entry, and finds out when that comes up that there is more time. The heap holds at most one live entry
per key, and a cancelled entry leaves it when its time comes.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class TimerKey(NamedTuple):
    """The kind of a timer, its group, and its member (empty: the whole group)."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class Timers:
    def __init__(self) -> None:
        self._due: dict[TimerKey, int] = {}
        # The time of a key's entry in the heap: never later than the key is due.
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
        """Remove and return one key that is due."""
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
        """Remove the first entry; return its key, or None if an earlier entry has replaced it."""
        at_ms, key = heapq.heappop(self._heap)
        if self._queued.get(key) != at_ms:
            return None
        del self._queued[key]
        return key
