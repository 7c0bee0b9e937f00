"""Runs campaigns of simulated clusters: many seeds of every story, with failures and counts of what happened.

    python -m penstock.simulator --seeds 1000                  # seeds 0 to 999 of every story, on all cores
    python -m penstock.simulator --story cluster --seeds 50    # of one story
    python -m penstock.simulator --story cluster --seed 17     # one seed again, with the last events if it fails
    python -m penstock.simulator --seeds 1000 --table FILE     # and the faults at critical moments, as Markdown

A campaign fails if a checker found a violation, or if something that should happen never did: an event, or a fault at a
critical moment. Then the campaign did not test what it claims to test. That needs enough seeds, so it is not required
of fewer than `ENOUGH_SEEDS`, or `ENOUGH_SEEDS_FOR_MOMENTS`, unless with `--strict`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from penstock.simulator.critical_table import CriticalTable
from penstock.simulator.moments import Pair
from penstock.simulator.program import aloud
from penstock.simulator.stories.stories import STORIES
from penstock.simulator.story import StoryResult, quietly, replay_command

ENOUGH_SEEDS: Final = 100
ENOUGH_SEEDS_FOR_MOMENTS: Final = 1000
SEED_CPU_MAX_S: Final = 120
RECENT_SHOWN: Final = 100
LINES_WITHOUT_TERMINAL: Final = 40
"""Where no progress bar can be shown, a campaign prints about this many lines."""


class SeedResult(NamedTuple):
    """The result of one seed of one story."""

    story: str
    seed: int
    outcome: StoryResult
    cpu_s: float


class TooLong(KeyboardInterrupt):
    """Virtual time costs nothing, so a story that takes minutes is in an endless loop. Derived from KeyboardInterrupt,
    because asyncio lets no other exception out of the code that happens to run."""


def run_seed(task: tuple[str, int]) -> SeedResult:
    """Runs in a worker process."""
    name, seed = task
    quietly()
    before = time.process_time()
    outcome = play(name, seed)
    return SeedResult(name, seed, outcome._replace(recent=()), time.process_time() - before)


def play(name: str, seed: int) -> StoryResult:
    signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, SEED_CPU_MAX_S)
    try:
        return STORIES[name].play(seed)
    except (Exception, TooLong) as error:  # noqa: BLE001 - whatever a story ends with is its outcome
        return StoryResult(f"{type(error).__name__}: {error}", Counter(), "", traceback.format_exc().splitlines())
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong(f"not over after {SEED_CPU_MAX_S} s")


class Campaign:
    def __init__(self, stories: Sequence[str], seeds: range, console: Console) -> None:
        self.stories = stories
        self.seeds = seeds
        self.console = console
        self.events: dict[str, Counter[str]] = defaultdict(Counter)
        self.critical: dict[str, Counter[Pair]] = defaultdict(Counter)
        self.cpu_s: dict[str, float] = defaultdict(float)
        self.violations: list[SeedResult] = []

    def run(self, jobs: int) -> None:
        tasks = [(name, seed) for seed in self.seeds for name in self.stories]
        columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(
            *columns,
            TextColumn("{task.description}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as progress:
            bar = progress.add_task("", total=len(tasks))
            for done, result in enumerate(_results(tasks, jobs), start=1):
                self._count(result)
                progress.update(bar, advance=1, description=f"{result.story} {result.seed}")
                if not self.console.is_terminal and done % (len(tasks) // LINES_WITHOUT_TERMINAL + 1) == 0:
                    self.console.print(f"{done:,} of {len(tasks):,}, {sum(self.cpu_s.values()):,.0f} s of CPU")

    def _count(self, result: SeedResult) -> None:
        self.events[result.story].update(result.outcome.events)
        self.critical[result.story].update(result.outcome.critical)
        self.cpu_s[result.story] += result.cpu_s
        if result.outcome.violation is not None:
            self.violations.append(result)
            self.console.print(
                f"{result.outcome.violation}\n  again: {replay_command(result.story, result.seed)}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def never_happened(self) -> list[str]:
        return [
            f"{name}: {event}"
            for name in self.stories
            for event in STORIES[name].events
            if not self.events[name][event]
        ]

    def critical_table(self) -> CriticalTable:
        return CriticalTable([STORIES[name] for name in self.stories], self.critical)

    def report(self) -> None:
        table = Table(title=f"seeds {self.seeds.start} to {self.seeds.stop - 1}", title_justify="left")
        for heading in ("story", "what it is"):
            table.add_column(heading)
        for heading in ("seeds", "violations", "CPU s"):
            table.add_column(heading, justify="right")
        broken = Counter(result.story for result in self.violations)
        for name in self.stories:
            counts = (len(self.seeds), broken[name], round(self.cpu_s[name]))
            table.add_row(name, STORIES[name].about, *(f"{count:,}" for count in counts))
        self.console.print(table)
        self.console.print(self._event_table())
        self.console.print(self.critical_table().rich())

    def _event_table(self) -> Table:
        table = Table(title="how often it happened", title_justify="left")
        table.add_column("event")
        for name in self.stories:
            table.add_column(name, justify="right")
        for event in dict.fromkeys(event for name in self.stories for event in STORIES[name].events):
            table.add_row(event, *(self._cell(name, event) for name in self.stories))
        return table

    def _cell(self, name: str, event: str) -> str:
        count = self.events[name][event]
        if count:
            return f"{count:,}"
        return "[bold red]0[/]" if event in STORIES[name].events else ""


def _results(tasks: list[tuple[str, int]], jobs: int) -> Iterator[SeedResult]:
    if jobs == 1:
        yield from map(run_seed, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_seed, tasks, chunksize=4)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.simulator", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seed", type=int, help="only this one, with what happened last if it fails")
    parser.add_argument("--story", action="append", choices=list(STORIES), help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    parser.add_argument("--strict", action="store_true", help="everything has to happen, however few the seeds are")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the faults at critical moments, as Markdown")
    parser.add_argument("--verbose", action="store_true", help="with --seed: show what the nodes log")
    options = parser.parse_args(arguments)
    stories = options.story or list(STORIES)
    if options.seed is not None:
        if options.verbose:
            aloud()
        else:
            quietly()
        return max(_replay(name, options.seed) for name in stories)
    console = Console()
    campaign = Campaign(stories, range(options.first, options.first + options.seeds), console)
    campaign.run(options.jobs)
    campaign.report()
    if options.table is not None:
        options.table.write_text(campaign.critical_table().markdown(campaign.seeds), encoding="utf-8")
    missing = campaign.never_happened() if options.strict or options.seeds >= ENOUGH_SEEDS else []
    if options.strict or options.seeds >= ENOUGH_SEEDS_FOR_MOMENTS:
        missing += campaign.critical_table().missing()
    for result in campaign.violations:
        print(f"{replay_command(result.story, result.seed)}  # {result.outcome.violation}")
    if missing:
        print(f"never happened: {', '.join(missing)}")
    print("no violation" if not campaign.violations else f"{len(campaign.violations)} violations")
    return 1 if campaign.violations or missing else 0


def _replay(name: str, seed: int) -> int:
    outcome = play(name, seed)
    if outcome.violation is not None:
        for line in outcome.recent[-RECENT_SHOWN:]:
            print(line)
    events = ", ".join(f"{event} {count}" for event, count in sorted(outcome.events.items()) if count)
    print(f"{name}, seed {seed}: {outcome.violation or 'no violation'}\ntrace {outcome.trace_hash}; {events}")
    return 0 if outcome.violation is None else 1
