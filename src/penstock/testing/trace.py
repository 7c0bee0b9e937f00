"""A running fingerprint of everything that happened in a simulation.

Two runs with the same seed have to have the same fingerprint; if they do not, something was decided by the address of
an object, the order of a set or the real clock, and no failure could be replayed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

Field = str | int | float | bytes | None


class Trace:
    """`add` what happens; `digest` is the fingerprint of all of it, `recent` the last of it, readable."""

    def __init__(self, now: Callable[[], float], *, keep: int = 1000) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=16)
        self.recent: deque[tuple[Field, ...]] = deque(maxlen=keep)
        self.count = 0

    def add(self, *fields: Field) -> None:
        event = (self._now(), *fields)
        self._hash.update(repr(event).encode())
        self.recent.append(event)
        self.count += 1

    def digest(self) -> str:
        return self._hash.hexdigest()
