"""`--compare FILE`: a run beside an earlier one, and whether what differs is more than the noise of both.

The noise of a row is the sum of the spreads of both runs: half the range of the rounds, as a part of their median. Two
runs of the same code differ by less than that nearly always; two machines, or two hours of one machine, may not. For a
figure that decides something, measure both in one run (`python -m bench.readers --before`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from rich.console import Console
from rich.table import Table

from bench.results import HIGHER_IS_BETTER, Row, Unit, spread_of
from bench.subjects import PENSTOCK
from bench.table import amount

Verdict = Literal["better", "worse", "within the noise", "one round only"]


@dataclass(frozen=True)
class Change:
    """What has become of one row."""

    title: str
    before: float
    after: float
    noise: float
    unit: Unit
    is_measured: bool
    """False if one of the runs had a single round, whose noise is unknown."""

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def verdict(self) -> Verdict:
        if not self.is_measured:
            return "one round only"
        if abs(self.ratio - 1) <= self.noise:
            return "within the noise"
        return "better" if (self.ratio > 1) == (self.unit in HIGHER_IS_BETTER) else "worse"


def read_samples(path: str) -> dict[tuple[str, str], list[float]]:
    """The samples of an earlier `--json FILE`, by name and title of their rows."""
    with open(path, encoding="utf-8") as file:
        return {(row["name"], row["title"]): row["samples"].get(PENSTOCK, []) for row in json.load(file)}


def changes(rows: Sequence[Row], earlier: dict[tuple[str, str], list[float]]) -> list[Change]:
    """The rows that both runs have."""
    found = []
    for row in rows:
        now, before = row.samples.get(PENSTOCK, []), earlier.get((row.name, row.title), [])
        if now and before and median(now) and median(before):
            noise = spread_of(now) + spread_of(before)
            is_measured = len(now) > 1 and len(before) > 1
            found.append(Change(row.title, median(before), median(now), noise, row.unit, is_measured))
    return found


def print_changes(console: Console, rows: Sequence[Row], path: str) -> None:
    by_title = {row.title: row for row in rows}
    table = Table(title=f"Beside {path}", title_justify="left", caption=_CAPTION, caption_justify="left")
    table.add_column("load", no_wrap=True)
    for heading in ("before", "now", "now to before", "noise", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for change in changes(rows, read_samples(path)):
        row = by_title[change.title]
        table.add_row(
            change.title,
            amount(row, change.before),
            amount(row, change.after),
            f"{change.ratio:.2f}",
            f"±{change.noise:.0%}" if change.is_measured else "?",
            change.verdict,
        )
    console.print(table)


_CAPTION = "Noise: half the range of the rounds of both runs, added up; the load of the machine may differ by more."
