"""A wall clock and randomness that a test controls."""

from __future__ import annotations

import random
from collections.abc import Callable

DEFAULT_START_MS = 1_700_000_000_000
"""An ordinary day (November 2023): late enough that no retention arithmetic goes below zero."""


class SimulatedClock:
    """Stands still until it is set, or runs with `elapsed` (a loop's `time`), and may also jump forwards or backwards.

    A node of a simulated cluster has a clock of its own, so that clocks can disagree.
    """

    def __init__(self, start_ms: int = DEFAULT_START_MS, *, elapsed: Callable[[], float] | None = None) -> None:
        self._offset_ms = start_ms
        self.suspended_ms = 0
        self._elapsed = elapsed
        if elapsed is not None:
            self._offset_ms -= int(elapsed() * 1000)

    def now_ms(self) -> int:
        if self._elapsed is None:
            return self._offset_ms
        return self._offset_ms + int(self._elapsed() * 1000)

    def boottime_ms(self) -> int:
        """For a clock that stands still until it is set: only the time it was suspended."""
        return self.suspended_ms + (0 if self._elapsed is None else int(self._elapsed() * 1000))

    def jump(self, milliseconds: int) -> None:
        """Forwards, or backwards if negative, as when an operator or ntpd sets the clock."""
        self._offset_ms += milliseconds

    def suspend(self, milliseconds: int) -> None:
        """The machine slept: all clocks have advanced except for the event loop's."""
        self._offset_ms += milliseconds
        self.suspended_ms += milliseconds


class SimulatedRandomness:
    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)
