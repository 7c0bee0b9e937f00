"""A running fingerprint of all events of a simulation.

Two runs with the same seed must have the same fingerprint. If they do not, the address of an object, the order of a set
or the real clock decided something, and no failure could be replayed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

Field = str | int | float | bytes | None

_AT_ONCE = 500
"""How many events are hashed in one call: events are short, and calls are not free."""


class Trace:
    """`add` records an event; `digest` is the fingerprint of all events, `recent` has the last ones, readable."""

    def __init__(self, now: Callable[[], float], *, keep: int = 1000) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=16)
        self._to_hash: list[tuple[Field, ...]] = []
        self.recent: deque[tuple[Field, ...]] = deque(maxlen=keep)
        self.count = 0
        self.moments = 0
        """How often time advanced, which is part of every event."""

    def add(self, *fields: Field) -> None:
        event = (self._now(), self.moments, *fields)
        self._to_hash.append(event)
        self.recent.append(event)
        self.count += 1
        if len(self._to_hash) >= _AT_ONCE:
            self._hash_them()

    def digest(self) -> str:
        result = self._hash.copy()
        result.update(repr((self._to_hash, self._now(), self.moments)).encode())
        return result.hexdigest()

    def _hash_them(self) -> None:
        self._hash.update(repr(self._to_hash).encode())
        self._to_hash.clear()
