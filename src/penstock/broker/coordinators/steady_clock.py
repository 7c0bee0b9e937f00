"""The time of day as coordinators see it: it goes on evenly, whatever becomes of the machine's clock.

Sessions and transactions time out by it, and offsets are stamped with it. A clock that is set by some minutes must not
expel every member of every group, nor let them linger; so this one follows slowly. One that is off by more than a day
was never right, and is followed at once: what is stamped with a wrong year would expire at the wrong time.

While a machine is suspended time passes, by this clock as well (`Clock.boottime_ms`). If it lagged behind afterwards,
what it stamps then, the beginning of a transaction, would look old to the next coordinator.
"""

from __future__ import annotations

from typing import Final

from penstock.io.clock import Clock

# It makes up for a difference by going so much faster or slower.
SLEW: Final = 10
JUMP_MS: Final = 86_400_000


class SteadyClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time_ms = clock.now_ms()
        self._read_at_ms = clock.boottime_ms()
        self._slewed_until_ms = self._read_at_ms

    def boottime_ms(self) -> int:
        return self._clock.boottime_ms()

    def now_ms(self) -> int:
        elapsed = self._clock.boottime_ms()
        self._time_ms += elapsed - self._read_at_ms
        self._read_at_ms = elapsed
        difference = self._clock.now_ms() - self._time_ms
        if abs(difference) > JUMP_MS:
            self._time_ms += difference
        elif difference:
            allowed = (elapsed - self._slewed_until_ms) // SLEW
            if allowed:
                self._slewed_until_ms += allowed * SLEW
                self._time_ms += max(-allowed, min(allowed, difference))
        else:
            self._slewed_until_ms = elapsed
        return self._time_ms
