"""A map of records that have a latitude and a longitude: where each thing was last, and the way it came.

The map is made of the records alone: a grid of degrees, and large towns to find one's way, whose places are in `towns`.
Nothing is fetched. The projection keeps the distances of the middle latitude equal in both directions, which is enough
for a country or a continent, and at the scale of the world it is the plain one of degrees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.console.views.towns import TOWNS

WIDTH, HEIGHT_MIN, HEIGHT_MAX = 640, 280, 620
MARGIN = 26
THINGS_MAX = 500
TRAIL_MAX = 60
TOWNS_MAX = 16
NAMED_MAX = 40
_SPAN_MIN = 0.02
_PADDING = 0.08
_LINES = 6
_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0)


@dataclass(frozen=True, slots=True)
class Place:
    """One record: whose it is, where it was, and a number to show, if there is one."""

    name: str
    latitude: float
    longitude: float
    at_ms: float
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Thing:
    """The last place of something."""

    name: str
    x: float
    y: float
    place: Place
    trail: str
    """The path of the way it came; empty if it has not moved."""
    share: float
    """Its value, from 0 to 1 of the largest; 0 without one."""
    is_named: bool
    """There is space for its name beside it."""


@dataclass(frozen=True, slots=True)
class Town:
    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Degree:
    position: float
    degrees: float


@dataclass(frozen=True, slots=True)
class Map:
    things: tuple[Thing, ...]
    towns: tuple[Town, ...]
    across: tuple[Degree, ...]
    """Meridians."""
    up: tuple[Degree, ...]
    """Parallels."""
    height: float
    left_out: int
    """Things for which there was no space."""


def is_place(latitude: object, longitude: object) -> bool:
    return _is_degree(latitude, 90.0) and _is_degree(longitude, 180.0)


def draw_map(places: Sequence[Place]) -> Map | None:
    """`places` from the newest to the oldest; None if there is none."""
    ways: dict[str, list[Place]] = {}
    left_out: set[str] = set()
    for place in places:
        if place.name not in ways and len(ways) >= THINGS_MAX:
            left_out.add(place.name)
            continue
        ways.setdefault(place.name, []).append(place)
    if not ways:
        return None
    project = _Projection([place for way in ways.values() for place in way])
    largest = max((abs(way[0].value) for way in ways.values() if way[0].value is not None), default=0.0)
    taken = _Taken()
    points = {name: project.point(way[0]) for name, way in ways.items()}
    for x, y in points.values():
        taken.take(x - 5, y - 5, 10, 10)
    things = []
    for name, way in sorted(ways.items()):
        x, y = points[name]
        share = 0.0 if way[0].value is None or not largest else abs(way[0].value) / largest
        named = len(ways) <= NAMED_MAX and taken.fits(x + 7, y - 6, 6.0 * min(len(name), 24), 11)
        things.append(Thing(name, x, y, way[0], _trail(project, way), share, named))
    return Map(
        tuple(things),
        _towns(project, taken),
        tuple(Degree(project.x(each), each) for each in _degrees(project.west, project.east)),
        tuple(Degree(project.y(each), each) for each in _degrees(project.south, project.north)),
        project.height,
        len(left_out),
    )


class _Projection:
    """Degrees to the points of the drawing, such that all places fit and neither direction is stretched."""

    def __init__(self, places: Sequence[Place]) -> None:
        latitudes, longitudes = [each.latitude for each in places], [each.longitude for each in places]
        middle = (min(latitudes) + max(latitudes)) / 2
        self._narrow = max(0.2, math.cos(math.radians(middle)))
        high = max(max(latitudes) - min(latitudes), _SPAN_MIN) * (1 + 2 * _PADDING)
        wide = max(max(longitudes) - min(longitudes), _SPAN_MIN) * (1 + 2 * _PADDING) * self._narrow
        inner = WIDTH - 2 * MARGIN
        self.height = min(HEIGHT_MAX, max(HEIGHT_MIN, inner * high / wide + 2 * MARGIN))
        self._scale = min(inner / wide, (self.height - 2 * MARGIN) / high)
        self._longitude = (min(longitudes) + max(longitudes)) / 2
        self._latitude = middle
        self.west, self.east = (self._longitude + sign * inner / 2 / self._scale / self._narrow for sign in (-1, 1))
        self.south, self.north = (
            self._latitude + sign * (self.height - 2 * MARGIN) / 2 / self._scale for sign in (-1, 1)
        )

    def x(self, longitude: float) -> float:
        return WIDTH / 2 + (longitude - self._longitude) * self._narrow * self._scale

    def y(self, latitude: float) -> float:
        return self.height / 2 - (latitude - self._latitude) * self._scale

    def point(self, place: Place) -> tuple[float, float]:
        return self.x(place.longitude), self.y(place.latitude)


class _Taken:
    """Rectangles on which something is written already."""

    def __init__(self) -> None:
        self._taken: list[tuple[float, float, float, float]] = []

    def take(self, x: float, y: float, width: float, height: float) -> None:
        self._taken.append((x, y, x + width, y + height))

    def fits(self, x: float, y: float, width: float, height: float) -> bool:
        """Takes the rectangle, if it is free."""
        right, bottom = x + width, y + height
        if right > WIDTH or any(x < c and a < right and y < d and b < bottom for a, b, c, d in self._taken):
            return False
        self.take(x, y, width, height)
        return True


def _trail(project: _Projection, way: Sequence[Place]) -> str:
    step = math.ceil(len(way) / TRAIL_MAX)
    points = [project.point(place) for place in way[::step]]
    if all(abs(x - points[0][0]) < 0.5 and abs(y - points[0][1]) < 0.5 for x, y in points):
        return ""
    return "".join(f"{'M' if index == 0 else 'L'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))


def _towns(project: _Projection, taken: _Taken) -> tuple[Town, ...]:
    """The largest of those on the map that do not cover anything else. `TOWNS` begins with the largest."""
    found: list[Town] = []
    for name, latitude, longitude in TOWNS:
        if project.south < latitude < project.north and project.west < longitude < project.east:
            x, y = project.x(longitude), project.y(latitude)
            if taken.fits(x - 3, y - 7, 12 + 6.0 * len(name), 14):
                found.append(Town(name, x, y))
                if len(found) == TOWNS_MAX:
                    break
    return tuple(found)


def _degrees(low: float, high: float) -> list[float]:
    step = next((each for each in _STEPS if (high - low) / each <= _LINES), _STEPS[-1])
    first = math.ceil(low / step)
    return [round(index * step, 6) for index in range(first, math.floor(high / step) + 1)]


def _is_degree(value: object, largest: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -largest <= value <= largest  # type: ignore[operator]  # it is a number
