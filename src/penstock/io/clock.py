"""Wall-clock time and randomness, as things that are handed in.

Elapsed time and timers come from the event loop (`loop.time`, `loop.call_later`), as do threads
(`loop.run_in_executor`) and sockets (`loop.create_server`, `loop.create_connection`): the asyncio loop *is* the seam
for those, and the simulated twin is an event loop with virtual time and an in-memory network.
"""

from __future__ import annotations

import os
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump, forwards or backwards."""
        ...


class Randomness(Protocol):
    def bytes(self, size: int) -> bytes: ...


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class RealRandomness:
    def bytes(self, size: int) -> bytes:
        return os.urandom(size)
