"""Lines over time as the numbers of an SVG drawing: scales, ticks, paths. Colours are the stylesheet's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
"""A time in milliseconds, and a value."""

WIDTH, HEIGHT = 640, 160
LEFT, RIGHT, TOP, BOTTOM = 68, 8, 8, 22
LINES_MAX = 8
_GAP = 5  # times the usual distance: nothing was sampled in between, and nothing is drawn
_TIME_STEPS_S = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Tick:
    position: float
    value: float


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    path: str
    last: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    lines: tuple[Line, ...]
    across: tuple[Tick, ...]
    """Times in milliseconds."""
    up: tuple[Tick, ...]
    left_out: int
    """Series for which there was no space."""

    @property
    def has_seconds(self) -> bool:
        """Minutes are not enough to tell the times apart."""
        return len(self.across) > 1 and self.across[1].value - self.across[0].value < 60_000

    @property
    def is_empty(self) -> bool:
        return not self.lines


def draw(series: Sequence[Series], begin_ms: float, end_ms: float) -> Chart:
    """The series with the largest last values, at most as many as a reader can distinguish."""
    inside = [Series(each.name, [point for point in each.points if begin_ms <= point[0] <= end_ms]) for each in series]
    drawn = [each for each in inside if each.points]
    drawn.sort(key=lambda each: (-each.points[-1][1], each.name))
    shown = drawn[:LINES_MAX]
    top = nice_ceiling(max((value for each in shown for _, value in each.points), default=0.0))
    span = max(end_ms - begin_ms, 1.0)

    def x(at: float) -> float:
        return LEFT + (at - begin_ms) / span * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - max(0.0, value) / top) * (HEIGHT - TOP - BOTTOM)

    lines = tuple(
        Line(
            each.name,
            _path([(x(at), y(value)) for at, value in each.points], _usual(each.points, span)),
            each.points[-1][1],
        )
        for each in shown
    )
    return Chart(
        lines,
        tuple(Tick(x(at), at) for at in time_ticks(begin_ms, end_ms)),
        tuple(Tick(y(value), value) for value in (0.0, top / 2, top)),
        len(drawn) - len(shown),
    )


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if value < 1e-9 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999999)


def time_ticks(begin_ms: float, end_ms: float) -> list[float]:
    """Four to eight round times."""
    span_s = (end_ms - begin_ms) / 1000
    step_ms = 1000.0 * next((step for step in _TIME_STEPS_S if span_s / step <= 7), _TIME_STEPS_S[-1])
    first = math.ceil(begin_ms / step_ms) * step_ms
    return [first + step_ms * index for index in range(int((end_ms - first) // step_ms) + 1)] if end_ms >= first else []


def _usual(points: Sequence[Point], span: float) -> float:
    """The usual distance between two points, on the drawing."""
    gaps = sorted(later[0] - earlier[0] for earlier, later in pairwise(points))
    return 0.0 if not gaps else gaps[len(gaps) // 2] / span * (WIDTH - LEFT - RIGHT)


def _path(points: Sequence[Point], usual: float) -> str:
    parts = []
    before: float | None = None
    for x, y in points:
        jump = before is None or (usual > 0 and x - before > usual * _GAP)
        parts.append(f"{'M' if jump else 'L'}{x:.1f} {y:.1f}")
        before = x
    if len(parts) == 1:
        parts.append("h1")
    return "".join(parts)
