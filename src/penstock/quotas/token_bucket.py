"""A token bucket: what a client may do in one go, and how long it must wait after it has done more.

The bucket starts full, with `samples` x `size_ms` worth of tokens, and is refilled at the limit. It may be overdrawn by
one request, whatever its size; then everything is refused until there are tokens again. Time never goes backwards here.
"""

from __future__ import annotations

import math

from penstock.quotas.rate import Window, rounded_ms


class TokenBucket:
    __slots__ = ("_now_ms", "_tokens", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = math.inf  # full, whatever the limit is
        self._now_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        now_ms = max(now_ms, self._now_ms)
        refilled = self._tokens + limit * (now_ms - self._now_ms) / 1000
        self._tokens = min(self._burst(limit), refilled)
        self._now_ms = now_ms
        return self._tokens

    def take(self, permits: float, limit: float, now_ms: int) -> None:
        self._tokens = self.tokens(limit, now_ms) - permits

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until the bucket is not overdrawn any more; 0 if it is not."""
        tokens = self.tokens(limit, now_ms)
        return 0 if tokens >= 0 else rounded_ms(-tokens / limit * 1000)

    def is_idle(self, limit: float, now_ms: int) -> bool:
        """Full again: this is like a new one."""
        return self.tokens(limit, now_ms) >= self._burst(limit)

    def _burst(self, limit: float) -> float:
        return self._window.span_ms / 1000 * limit
