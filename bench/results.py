"""Rows of the table: samples by subject, what they are compared with, and the verdict.

`circumstances` is what a sample was measured on.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from bench.subjects import EPOLL_FLOOR, FLOOR, PEER, PENSTOCK

Unit = Literal["requests/s", "messages/s", "ms", "s", "MB", "%", "cores a client core", "times"]
HIGHER_IS_BETTER: set[Unit] = {"requests/s", "messages/s"}


def circumstances() -> dict[str, Any]:
    """What a figure has to be judged by: the commit, and what else the machine does."""
    return {"commit": _commit(), "load_average": [round(each, 2) for each in os.getloadavg()], "cores": os.cpu_count()}


def _commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty= and changes"],
        check=False,
        capture_output=True,
        text=True,
        cwd=os.path.dirname(os.path.abspath(__file__)),
    )
    return described.stdout.strip() or "unknown"


@dataclass(frozen=True)
class Target:
    kind: Literal["floor ratio", "at least", "below"]
    value: float


def spread_of(values: Sequence[float]) -> float:
    """Half the range of samples, as a part of their median."""
    return (max(values) - min(values)) / 2 / median(values)


@dataclass
class Row:
    name: str
    title: str
    unit: Unit
    target: Target | None = None
    bytes_a_unit: float = 0.0
    """What one request or message carries, to show MB/s beside a rate; 0 where that means nothing."""
    samples: dict[str, list[float]] = field(default_factory=dict)
    """By subject, one a round, in the order of the rounds."""
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    """By subject: CPU of the server a request."""
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, subject: str, value: float, cpu_us: float | None = None) -> None:
        self.samples.setdefault(subject, []).append(value)
        if cpu_us is not None:
            self.cpu_us.setdefault(subject, []).append(cpu_us)

    def median(self, subject: str) -> float | None:
        values = self.samples.get(subject)
        return median(values) if values else None

    def median_cpu_us(self, subject: str) -> float | None:
        values = self.cpu_us.get(subject)
        return median(values) if values else None

    @property
    def result(self) -> float | None:
        return self.median(PENSTOCK)

    @property
    def spread(self) -> float | None:
        values = self.samples.get(PENSTOCK, [])
        return spread_of(values) if len(values) > 1 and median(values) else None

    @property
    def floor_ratio(self) -> float | None:
        return self._quotient(PENSTOCK, FLOOR)

    @property
    def floor_ratio_range(self) -> tuple[float, float] | None:
        """The lowest and highest ratio of one round, where floor and broker ran right after each other."""
        pairs = list(zip(self.samples.get(PENSTOCK, []), self.samples.get(FLOOR, []), strict=False))
        ratios = [ours / floor for ours, floor in pairs if floor]
        return (min(ratios), max(ratios)) if ratios else None

    @property
    def floor_to_epoll(self) -> float | None:
        return self._quotient(FLOOR, EPOLL_FLOOR)

    @property
    def peer_ratio(self) -> float | None:
        """How many times better than the peer: above 1 is ahead, whichever way the unit counts."""
        if self.unit in HIGHER_IS_BETTER:
            return self._quotient(PENSTOCK, PEER)
        return self._quotient(PEER, PENSTOCK)

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none, or nothing was measured."""
        if self.target is None:
            return None
        value = self.floor_ratio if self.target.kind == "floor ratio" else self.result
        if value is None:
            return None
        return value < self.target.value if self.target.kind == "below" else value >= self.target.value

    def _quotient(self, above: str, below: str) -> float | None:
        over, under = self.median(above), self.median(below)
        return over / under if over is not None and under else None

    def to_json(self) -> dict[str, Any]:
        derived = {
            "result": self.result,
            "floor_ratio": self.floor_ratio,
            "floor_ratio_range": self.floor_ratio_range,
            "floor_to_epoll": self.floor_to_epoll,
            "peer_ratio": self.peer_ratio,
            "met": self.met,
        }
        return {**asdict(self), **derived}
