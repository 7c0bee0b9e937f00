"""The states of the records that a share partition knows, from its start offset (SPSO) to its end offset (SPEO).

A `Run` is a range of neighbouring records with one state, delivery count and owner. Runs are sorted and do not overlap.
A run is cut in two only where states begin to differ. Offsets between two runs are *gaps*: nothing is known of them
(after a change of leader), and they are fetched like new records.

Each run belongs to a `Batch`: the range that was acquired together for the first time. A batch whose delivery fails
again and again is delivered in smaller and smaller parts (`acquiring`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from penstock.model.ownership import owned_by_loop
from penstock.shares.states import RecordState, Span, StateBatch, Transition

_last = attrgetter("last")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(slots=True, eq=False)
class Run:
    first: int
    last: int
    state: RecordState
    delivery_count: int
    batch: Batch
    member: str = ""
    """The owner, while the run is acquired, and until an acknowledgement is persisted."""
    lock_ends_ms: int = 0
    transition: Transition | None = None
    """The acknowledgement that is being persisted: `state` is what it leads to."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def can_be_acquired(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.transition is None

    @property
    def is_settled(self) -> bool:
        return self.transition is None and self.state.is_final


@owned_by_loop()
class InFlight:
    __slots__ = ("_runs", "_search_from", "final_count", "start_offset")

    def __init__(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        """Raises ValueError if the batches overlap or begin below the start offset."""
        self.start_offset = start_offset
        self.final_count = 0  # of records at or above the start offset
        self._runs: list[Run] = []
        self._search_from = start_offset  # no record below can be acquired
        for first, last, state, delivery_count in batches:
            if not self.end_offset < first <= last:
                raise ValueError(f"offsets {first} to {last} do not follow {self.end_offset}")
            restored = RecordState.AVAILABLE if state is RecordState.ACQUIRED else state
            self.add(Run(first, last, restored, delivery_count, Batch(first, last)))
        self.advance()

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def end_offset(self) -> int:
        """The last offset that was acquired, or is known to be final."""
        return self._runs[-1].last if self._runs else self.start_offset - 1

    @property
    def open_count(self) -> int:
        """Offsets from start to end that are not final."""
        return self.end_offset - self.start_offset + 1 - self.final_count

    # -- finding ----------------------------------------------------------------------------------------------------

    def next_fetch_offset(self) -> int:
        """The first offset that can be acquired, or is not known yet."""
        offset = max(self._search_from, self.start_offset)
        runs = self._runs
        for index in range(self._index(offset), len(runs)):
            run = runs[index]
            if run.first > offset:
                break
            if run.can_be_acquired:
                offset = max(offset, run.first)
                break
            offset = run.last + 1
        self._search_from = offset
        return offset

    def at_or_after(self, offset: int) -> Run | None:
        """The run that holds the offset, or else the next."""
        index = self._index(offset)
        return self._runs[index] if index < len(self._runs) else None

    def overlapping(self, first: int, last: int) -> list[Run]:
        found = []
        for index in range(self._index(first), len(self._runs)):
            run = self._runs[index]
            if run.first > last:
                break
            found.append(run)
        return found

    def within(self, first: int, last: int) -> list[Run]:
        """The runs of exactly this range; cuts those that reach beyond it."""
        self._cut(first)
        self._cut(last + 1)
        return self.overlapping(first, last)

    def gaps(self, first: int, last: int) -> list[Span]:
        found = []
        for run in self.overlapping(first, last):
            if run.first > first:
                found.append(Span(first, run.first - 1))
            first = run.last + 1
        if first <= last:
            found.append(Span(first, last))
        return found

    def _index(self, offset: int) -> int:
        return bisect_left(self._runs, offset, key=_last)

    # -- changing ---------------------------------------------------------------------------------------------------

    def add(self, run: Run) -> None:
        """Add a run where there is a gap."""
        self._runs.insert(self._index(run.first), run)
        if run.state.is_final:
            self.final_count += run.size
        elif run.can_be_acquired:
            self._search_from = min(self._search_from, run.first)

    def cut_after(self, run: Run, size: int) -> None:
        """Let the run keep only its first `size` offsets; the others become a run of their own."""
        if size < run.size:
            self._cut(run.first + size)

    def _cut(self, offset: int) -> None:
        index = self._index(offset)
        if index == len(self._runs):
            return
        run = self._runs[index]
        if run.first < offset:
            rest = Run(
                offset,
                run.last,
                run.state,
                run.delivery_count,
                run.batch,
                run.member,
                run.lock_ends_ms,
                run.transition,
            )
            run.last = offset - 1
            self._runs.insert(index + 1, rest)

    def set_state(self, run: Run, state: RecordState, transition: Transition | None = None) -> None:
        self.final_count += (state.is_final - run.state.is_final) * run.size
        run.state = state
        run.transition = transition
        if run.can_be_acquired:
            self._search_from = min(self._search_from, run.first)

    def settle(self, run: Run) -> None:
        """The transition of the run is persisted."""
        run.member = ""
        self.set_state(run, run.state)

    def advance(self) -> bool:
        """Move the start offset past records that are final; returns whether it moved."""
        settled = 0
        for run in self._runs:
            if run.first != self.start_offset or not run.is_settled:
                break
            self.start_offset = run.last + 1
            self.final_count -= run.size
            settled += 1
        del self._runs[:settled]
        return settled > 0

    def start_at(self, offset: int) -> None:
        """Forget everything below an offset."""
        self._cut(offset)
        index = self._index(offset)
        self.final_count -= sum(run.size for run in self._runs[:index] if run.state.is_final)
        del self._runs[:index]
        self.start_offset = offset
        self.advance()
