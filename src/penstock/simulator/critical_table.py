"""A table of the seeds of a campaign in which each fault struck at each critical moment, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from rich.table import Table

from penstock.simulator.moments import Pair
from penstock.simulator.story import Story

FAULTS: Final = (
    "kill", "power loss", "stop", "cut", "reset", "full disk", "broken disk", "lost disk", "pause", "clock jump",
    "fenced", "failover",
)  # fmt: skip


class CriticalTable:
    """Rows are moments, columns are faults. A declared pair that never happened shows 0; an undeclared pair that never
    happened shows nothing."""

    def __init__(self, stories: Iterable[Story], counts: Mapping[str, Counter[Pair]]) -> None:
        self._stories = list(stories)
        self._counts = counts
        seen = {pair.fault for story in self._stories for pair in (*counts[story.name], *story.critical_pairs())}
        self.faults = [*(fault for fault in FAULTS if fault in seen), *sorted(seen.difference(FAULTS))]

    def missing(self) -> list[str]:
        return [
            f"{story.name}: {pair.fault} {pair.moment}"
            for story in self._stories
            for pair in story.critical_pairs()
            if not self._counts[story.name][pair]
        ]

    def rich(self) -> Table:
        table = Table(title="in how many seeds a fault struck at a critical moment", title_justify="left")
        table.add_column("story", no_wrap=True)
        table.add_column("moment", min_width=30)
        for fault in self.faults:
            table.add_column(fault, justify="right")
        for story, moment, cells in self._rows():
            table.add_row(story, moment, *("[bold red]0[/]" if cell == "0" else cell for cell in cells))
        return table

    def markdown(self, seeds: range) -> str:
        """For the seeds from the first to the last."""
        headings = ["story", "moment", *self.faults]
        lines = [
            f"Seeds {seeds.start:,} to {seeds.stop - 1:,}; each cell is a number of seeds.",
            "",
            f"| {' | '.join(headings)} |",
            f"|{'|'.join(['---', '---', *('---:' for _ in self.faults)])}|",
            *(f"| {' | '.join((story, moment, *cells))} |" for story, moment, cells in self._rows()),
        ]
        return "\n".join(lines) + "\n"

    def _rows(self) -> Iterable[tuple[str, str, list[str]]]:
        for story in self._stories:
            counts = self._counts[story.name]
            declared = set(story.critical_pairs())
            for moment in dict.fromkeys((*story.critical, *sorted(pair.moment for pair in counts))):
                pairs = [Pair(moment, fault) for fault in self.faults]
                yield story.name, moment, [_cell(counts[pair], pair in declared) for pair in pairs]


def _cell(count: int, is_declared: bool) -> str:
    return f"{count:,}" if count or is_declared else ""
