"""How recent the metadata image is: the moment up to which it has everything that was committed.

A node that follows learns the high watermark with each fetch. Everything that was committed when it sent the fetch is
below the high watermark in the answer, so the image is as recent as that fetch once it reaches that offset.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class _Seen(NamedTuple):
    asked_at: float
    high_watermark: int


class Freshness:
    def __init__(self) -> None:
        self._as_of = -math.inf
        self._seen: _Seen | None = None

    def answered(self, asked_at: float, high_watermark: int, image_end: int) -> None:
        """A fetch sent at `asked_at` returned this high watermark. `image_end`: the offset after the image's last."""
        self._reached(image_end)
        self._seen = _Seen(asked_at, high_watermark)

    def as_of(self, image_end: int) -> float:
        self._reached(image_end)
        return self._as_of

    def _reached(self, image_end: int) -> None:
        if self._seen is not None and image_end >= self._seen.high_watermark:
            self._as_of = max(self._as_of, self._seen.asked_at)
            self._seen = None
