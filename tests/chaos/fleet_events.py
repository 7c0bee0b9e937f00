"""Trucks that report, and what examples/pipelines/fleet.yaml must make of it: plain Python, without Spark.

They report in rounds: each truck once of its place and once of its fuel, at some moment of the round. A round is
shorter than the watermarks' delay, so a batch that cuts one in two leaves nothing behind that would be late.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

LOCATIONS, FUEL = "truck-locations", "truck-fuel"
TRUCKS = 20
ROUND, WINDOW, DELAY = timedelta(minutes=4), timedelta(minutes=10), timedelta(minutes=10)
STOLEN = 20
_BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
_UNFIT_CHANCE = 0.02
_CRAWL = 4  # of so many windows each truck stands one

Row = tuple[Any, ...]
Report = dict[str, Any]


@dataclass(frozen=True)
class Event:
    key: str
    value: str


@dataclass
class Fleet:
    seed: int
    letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Topic and value of what must become a dead letter."""
    _rounds: int = 0
    _reports: dict[str, list[Report]] = field(default_factory=lambda: {LOCATIONS: [], FUEL: []})

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def next_round(self) -> dict[str, list[Event]]:
        """By topic; some of it poison, and some trucks not on earth."""
        begin = _BEGIN + self._rounds * ROUND
        self._rounds += 1
        events: dict[str, list[Event]] = {}
        for topic, report in ((LOCATIONS, self._location), (FUEL, self._fuel)):
            moments = sorted((self._chance.random() * ROUND + begin, number) for number in range(TRUCKS))
            events[topic] = [self._event(topic, report(number, at)) for at, number in moments]
            events[topic].append(self._poison(topic))
        return events

    def trucks(self) -> Counter[Row]:
        """Windows that are over, by the slower of the two topics."""
        over = min(max(_at(report) for report in reports) for reports in self._reports.values()) - DELAY
        moved, used = _by_window(self._reports[LOCATIONS]), _by_window(self._reports[FUEL])
        return Counter(
            _row(truck, since, moved[truck, since], used[truck, since])
            for truck, since in moved.keys() & used.keys()
            if since + WINDOW <= over
        )

    def alerts(self) -> Counter[Row]:
        return Counter(
            (truck, since, latitude, longitude, litres_used)
            for truck, since, _, _, speed_max, latitude, longitude, _, litres_used in self.trucks()
            if speed_max == 0 and litres_used > STOLEN
        )

    def _location(self, number: int, at: datetime) -> Report:
        stands = number % _CRAWL == (at - _BEGIN) // WINDOW % _CRAWL
        latitude = 500.0 if self._chance.random() < _UNFIT_CHANCE else self._chance.uniform(-90, 90)
        speed = 0 if stands else self._chance.randrange(1, 120)
        place = {"latitude": latitude, "longitude": self._chance.uniform(-180, 180), "speed": speed}
        return {"truck": f"truck-{number}", **place, "at": at.isoformat(timespec="milliseconds")}

    def _fuel(self, number: int, at: datetime) -> Report:
        litres = self._chance.randrange(200) / 4
        return {"truck": f"truck-{number}", "litres": litres, "at": at.isoformat(timespec="milliseconds")}

    def _event(self, topic: str, report: Report) -> Event:
        value = json.dumps(report)
        if report.get("latitude") == 500.0:
            self.letters[topic, value] += 1
        else:
            self._reports[topic].append(report)
        return Event(report["truck"], value)

    def _poison(self, topic: str) -> Event:
        event = Event(f"truck-{self._chance.randrange(TRUCKS)}", f"poison of round {self._rounds}")
        self.letters[topic, event.value] += 1
        return event


def _row(truck: str, since: datetime, moved: list[Report], used: list[Report]) -> Row:
    speeds = [report["speed"] for report in moved]
    litres = [report["litres"] for report in used]
    last = max(moved, key=_at)
    figures = (len(speeds), sum(speeds) / len(speeds), max(speeds), last["latitude"], last["longitude"])
    return (truck, since, *figures, max(used, key=_at)["litres"], max(litres) - min(litres))


def _by_window(reports: Iterable[Report]) -> dict[tuple[str, datetime], list[Report]]:
    windows: dict[tuple[str, datetime], list[Report]] = {}
    for report in reports:
        at = _at(report)
        windows.setdefault((report["truck"], at - (at - _BEGIN) % WINDOW), []).append(report)
    return windows


def _at(report: Report) -> datetime:
    return datetime.fromisoformat(report["at"])
