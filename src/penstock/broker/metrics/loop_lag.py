"""Measures how late the event loop runs its callbacks.

A timer compares its due time with the clock: whatever delays the loop delays this timer, too. It runs only while the
result can be queried: an idle node should not wake up for nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.net.latency import Latency, now_ns

INTERVAL_S: Final = 0.1


class LoopLag:
    def __init__(self, loop: asyncio.AbstractEventLoop, latency: Latency) -> None:
        self._loop = loop
        self._latency = latency
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def start(self) -> None:
        self._due_ns = now_ns() + int(INTERVAL_S * 1e9)
        self._timer = self._loop.call_later(INTERVAL_S, self._look)

    def _look(self) -> None:
        self._latency.add(max(0, now_ns() - self._due_ns))
        self.start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
