"""The pipelines' results, for the display: pure.

A report has a row for each region or page and each window of five seconds. Pipelines write a row again when it changes,
so the last one counts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.demo.workload import REPORTS, EventTopic

WINDOWS = 24
"""How many windows are kept: two minutes."""


@dataclass
class Windows:
    """The rows of one report, by window and subject."""

    subject: str
    rows: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows.setdefault(row["since"], {})[row[self.subject]] = row
        for old in sorted(self.rows)[:-WINDOWS]:
            del self.rows[old]

    def over_time(self, column: str) -> list[float]:
        """The sum over all subjects, window by window."""
        return [sum(row[column] or 0 for row in self.rows[since].values()) for since in sorted(self.rows)]

    def totals(self, column: str) -> dict[str, float]:
        """By subject, over all windows that are kept."""
        found: Counter[str] = Counter()
        for rows in self.rows.values():
            for subject, row in rows.items():
                found[subject] += row[column] or 0
        return dict(sorted(found.items()))

    def averages(self, column: str, weight: str) -> dict[str, float]:
        weighted: Counter[str] = Counter()
        weights = self.totals(weight)
        for rows in self.rows.values():
            for subject, row in rows.items():
                weighted[subject] += (row[column] or 0) * row[weight]
        return {subject: weighted[subject] / weights[subject] if weights[subject] else 0.0 for subject in weights}


class Reports:
    """One thread writes; others read copies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fleet = Windows("region")
        self._shop = Windows("page")
        self._levels: Counter[tuple[str, str]] = Counter()
        self._low: dict[str, bool] = {}

    def report(self, topic: str, row: Mapping[str, Any]) -> None:
        with self._lock:
            (self._fleet if topic == REPORTS["fleet"] else self._shop).add(row)

    def event(self, topic: EventTopic, row: Mapping[str, Any]) -> None:
        """An event as the pipeline forwarded it."""
        with self._lock:
            if topic.output == "shop.logs":
                self._levels[row["service"], row["level"]] += 1
            elif topic.output == "fleet.fuel":
                self._low[row["truck"]] = row["low"]

    def located(self) -> dict[str, float]:
        with self._lock:
            return self._fleet.totals("reports")

    def speeds(self) -> dict[str, float]:
        with self._lock:
            return self._fleet.averages("speed", "driving")

    def driving(self) -> list[float]:
        with self._lock:
            return self._fleet.over_time("driving")

    def low_tanks(self) -> list[str]:
        with self._lock:
            return sorted((truck for truck, low in self._low.items() if low), key=lambda name: (len(name), name))

    def views(self) -> dict[str, float]:
        with self._lock:
            return self._shop.totals("views")

    def purchases(self) -> list[float]:
        with self._lock:
            return self._shop.over_time("purchases")

    def error_rates(self) -> dict[str, float]:
        """By service, in percent of its lines."""
        with self._lock:
            lines: Counter[str] = Counter()
            errors: Counter[str] = Counter()
            for (service, level), count in self._levels.items():
                lines[service] += count
                errors[service] += count if level == "ERROR" else 0
            return {service: 100 * errors[service] / lines[service] for service in sorted(lines)}
