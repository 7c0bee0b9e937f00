"""How fast something happens: events in samples of one second, over the last eleven of them, as in Kafka.

A sample begins with its first event and takes what happens within `size_ms` after that. It counts until its last event
is `samples` x `size_ms` ago. The rate is the sum of the samples, divided by the time since the oldest one began; a rate
without enough history is divided by the full window nonetheless, so that the first events do not look like a flood.

Time never goes backwards here: an earlier time than the latest one counts as the latest one.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

INT_MAX: Final = 2**31 - 1


def rounded_ms(time_ms: float) -> int:
    """A throttle time, at most what a response can say: a tiny limit makes it longer than any float."""
    return math.floor(min(INT_MAX, time_ms) + 0.5)


class Window(NamedTuple):
    samples: int = 11
    size_ms: int = 1000

    @property
    def span_ms(self) -> int:
        return self.samples * self.size_ms

    @property
    def full_ms(self) -> int:
        """The samples that are complete while another one is being filled."""
        return (self.samples - 1) * self.size_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int, value: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = value


class Rate:
    __slots__ = ("_now_ms", "_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []  # a few; an empty deque would take half a kilobyte
        self._now_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        now_ms = self._go_on(now_ms)
        samples = self._samples
        if samples and now_ms - samples[-1].start_ms < self._window.size_ms:
            samples[-1].last_ms = now_ms
            samples[-1].value += value
        else:
            samples.append(_Sample(now_ms, value))

    def total(self, now_ms: int) -> float:
        """What was recorded within the window."""
        self._go_on(now_ms)
        return sum(sample.value for sample in self._samples)

    def window_ms(self, now_ms: int) -> int:
        """The time that the rate is measured over: from the oldest sample on, and at least the full window."""
        now_ms = self._go_on(now_ms)
        elapsed = now_ms - self._samples[0].start_ms if self._samples else 0
        samples, size_ms = self._window
        missing = max(0, samples - 1 - elapsed // size_ms)
        return max(1, elapsed + missing * size_ms)

    def per_second(self, now_ms: int) -> float:
        return self.total(now_ms) / self.window_ms(now_ms) * 1000

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing more must happen, until the rate is at the limit; 0 if it is not above."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return rounded_ms((rate - limit) / limit * self.window_ms(now_ms))

    def is_idle(self, now_ms: int) -> bool:
        """Nothing happened within the window: this is like a new one."""
        self._go_on(now_ms)
        return not self._samples

    def _go_on(self, now_ms: int) -> int:
        """The time that counts; forgets the samples that do not any more."""
        now_ms = self._now_ms = max(now_ms, self._now_ms)
        samples, oldest = self._samples, now_ms - self._window.span_ms
        while samples and samples[0].last_ms <= oldest:
            del samples[0]
        return now_ms
