"""Wall-clock time and randomness, as things that are handed in.

There are three times. The wall clock (`now_ms`) is what people and other machines mean, and may be set. The event
loop's (`loop.time`) is for what this process waits for; it stands still while the machine is suspended. `boottime_ms`
goes on meanwhile, and nobody sets it: it is for what others count on, as leases.

Elapsed time and timers come from the event loop (`loop.time`, `loop.call_later`), as do threads
(`loop.run_in_executor`) and sockets (`loop.create_server`, `loop.create_connection`): the asyncio loop *is* the seam
for those, and the simulated twin is an event loop with virtual time and an in-memory network.
"""

from __future__ import annotations

import os
import time
from typing import Final, Protocol

# Linux's; other systems count a suspension in what they call monotonic, or have no such clock.
_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump, forwards or backwards."""
        ...

    def boottime_ms(self) -> int:
        """Milliseconds since any beginning, those included that the machine was suspended."""
        ...


class Randomness(Protocol):
    def bytes(self, size: int) -> bytes: ...


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boottime_ms(self) -> int:
        return time.clock_gettime_ns(_BOOTTIME) // 1_000_000


class RealRandomness:
    def bytes(self, size: int) -> bytes:
        return os.urandom(size)
