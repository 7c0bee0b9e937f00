"""What the demo's clients have in common: librdkafka's settings, and threads whose failure is not overlooked."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

LATENCY_SECONDS = 10.0
BATCHES_SECONDS = 30.0
"""What comes in batches is looked at for longer."""


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """By librdkafka's names, with dots for underscores. What it has to say of brokers that die is no news here."""
    silent = logging.getLogger("penstock.librdkafka")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "penstock-demo",
        "logger": silent,
        "reconnect.backoff.max.ms": 1000,  # a broker that comes back is noticed
        **{name.replace("_", "."): value for name, value in more.items()},
    }


class Worker(threading.Thread):
    """A thread that tells what ended it."""

    def __init__(self, name: str, run: Callable[[], None], failed: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = run
        self._failed = failed

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  # told, and the demo fails by it
            self._failed(f"{self.name}: {type(error).__name__}: {error}")


class Latencies:
    """Of the last seconds. One thread adds, another asks."""

    def __init__(self, seconds: float = LATENCY_SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._last: deque[tuple[float, float]] = deque(maxlen=20_000)

    def add(self, milliseconds: float) -> None:
        self._last.append((self._now(), milliseconds))

    def percentiles(self, *wanted: float) -> list[float] | None:
        """None if there was nothing."""
        since = self._now() - self._seconds
        recent = sorted(each for at, each in list(self._last) if at >= since)
        return [recent[min(len(recent) - 1, int(len(recent) * part))] for part in wanted] if recent else None
