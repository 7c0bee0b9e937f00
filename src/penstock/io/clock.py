"""Wall-clock time and randomness as injected dependencies.

There are three times. The wall clock (`now_ms`) is the time that people and other machines use, and may be set. The
event loop's clock (`loop.time`) is for waits within this process; it stops while the machine is suspended.
`boottime_ms` continues during a suspension and cannot be set: it is for promises to others, such as leases.

Elapsed time and timers come from the event loop (`loop.time`, `loop.call_later`), as do threads
(`loop.run_in_executor`) and sockets (`loop.create_server`, `loop.create_connection`): for those the asyncio loop *is*
the interface, and its simulated implementation is an event loop with virtual time and an in-memory network.
"""

from __future__ import annotations

import os
import time
from typing import Final, Protocol

# Linux has this clock; other systems include suspensions in their monotonic clock, or have no such clock.
_BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump, forwards or backwards."""
        ...

    def boottime_ms(self) -> int:
        """Milliseconds since an arbitrary start, including time in which the machine was suspended."""
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
