"""Numbers as pictures made of letters: pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

_STEPS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last of them, each a column; the highest is full."""
    last = list(values)[-width:]
    top = max(last, default=0.0)
    if top <= 0:
        return _STEPS[0] * len(last)
    return "".join(_STEPS[min(len(_STEPS) - 1, int(max(0.0, value) / top * len(_STEPS)))] for value in last)


def bar(value: float, top: float, width: int) -> str:
    """To an eighth of a letter."""
    eighths = round(max(0.0, min(1.0, value / top if top > 0 else 0.0)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def bars(values: Mapping[str, float], width: int, unit: str = "") -> list[tuple[str, str, str]]:
    """Name, bar and number of each, for a table."""
    top = max(values.values(), default=0.0)
    return [(name, bar(value, top, width), f"{value:,.0f}{unit}") for name, value in values.items()]


class Rate:
    """A count that grows, seen now and then, as a rate over time."""

    def __init__(self, over: int = 3, keep: int = 60) -> None:
        self._over = over
        self._last: tuple[float, float] | None = None
        self.history: deque[float] = deque(maxlen=keep)

    def sample(self, now: float, count: float) -> None:
        """At most once a second."""
        if self._last is None:
            self._last = (now, count)
        elif now - self._last[0] >= 1.0:
            self.history.append(max(0.0, count - self._last[1]) / (now - self._last[0]))
            self._last = (now, count)

    @property
    def now(self) -> float:
        """Over the last few seconds, so that it can be read; what comes in batches needs more of them."""
        last = list(self.history)[-self._over :]
        return sum(last) / len(last) if last else 0.0
