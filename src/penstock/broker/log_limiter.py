"""Rate limit for log lines of failures that may repeat forever.

It lets a burst of lines pass, then one line per period, which says how many were left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

BURST: Final = 10
SECONDS_EACH: Final = 10.0


class SparingLog:
    def __init__(self, logger: logging.Logger, now: Callable[[], float]) -> None:
        """`now`: a clock in seconds, with any origin."""
        self._logger = logger
        self._now = now
        self._allowance = float(BURST)
        self._counted_at = now()
        self._left_out = 0

    def log(self, level: int, text: str, *arguments: object) -> None:
        if not self._logger.isEnabledFor(level):
            return
        now = self._now()
        self._allowance = min(BURST, self._allowance + (now - self._counted_at) / SECONDS_EACH)
        self._counted_at = now
        if self._allowance < 1:
            self._left_out += 1
            return
        self._allowance -= 1
        if self._left_out:
            text, arguments = f"{text} (%d such lines were left out)", (*arguments, self._left_out)
            self._left_out = 0
        self._logger.log(level, text, *arguments)
