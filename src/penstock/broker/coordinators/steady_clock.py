"""The wall clock of the coordinators: it advances evenly, even if the machine's clock is changed.

Session and transaction timeouts use it, and offsets are stamped with it. A change of the machine's clock by some
minutes must neither expel every member of every group nor let dead members linger, so this clock follows slowly. A
difference of more than a day means that the clock was never right, and is followed at once: records stamped with a
wrong year would expire at the wrong time.

The clock also advances while the machine is suspended (`Clock.boottime_ms`), as the leases of brokers do. If it lagged
afterwards, its timestamps (the start of a transaction, for example) would look old to the next coordinator.
"""

from __future__ import annotations

from typing import Final

from penstock.io.clock import Clock

# To catch up, it runs faster or slower by one part in this many.
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
