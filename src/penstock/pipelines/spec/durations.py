"""Lengths of time as people write them: `500ms`, `10s`, `5 minutes`, `1h30m`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)

PATTERN = r"^\s*(\d+(\.\d+)?\s*[A-Za-z]+\s*)+$"


@dataclass(frozen=True, slots=True)
class Duration:
    milliseconds: int

    @classmethod
    def parse(cls, text: str) -> Duration:
        total, end = 0.0, 0
        for part in _PART.finditer(text):
            unit = part[2].lower()
            unit = unit if unit in _UNITS_MS else unit.removesuffix("s")
            if part.start() != end or unit not in _UNITS_MS:
                break
            total += float(part[1]) * _UNITS_MS[unit]
            end = part.end()
        if end == 0 or text[end:].strip():
            raise ValueError(f'"{text}" is not a length of time such as 500ms, 10s, 5 minutes or 1h30m')
        return cls(round(total))

    @property
    def seconds(self) -> float:
        return self.milliseconds / 1000

    @property
    def spark(self) -> str:
        """In Spark's notation."""
        return f"{self.milliseconds} milliseconds"

    def __str__(self) -> str:
        rest, text = self.milliseconds, ""
        for unit in ("d", "h", "m", "s", "ms"):
            count, rest = divmod(rest, _UNITS_MS[unit])
            text += f"{count}{unit}" if count else ""
        return text or "0s"
