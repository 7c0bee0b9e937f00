"""A future log becomes what the current one is, whatever became of that meanwhile; and a move keeps its laws."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replication.epochs import LeaderEpochs
from penstock.replication.moving import (
    TRANSITIONS,
    Action,
    AdvanceStart,
    CaughtUp,
    Copy,
    Cut,
    Event,
    Extent,
    Move,
    Phase,
    StartOver,
    next_step,
)
from property_examples import examples

STEPS_MAX = 200


@dataclass
class ModelLog:
    """Records by their offsets: (epoch, value); a value is written once."""

    start: int = 0
    end: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict)

    def append(self, epoch: int, value: int) -> None:
        self.records[self.end] = (epoch, value)
        self.end += 1

    def cut(self, offset: int) -> None:
        if offset <= self.start:
            self.start_over(offset)
        else:
            self.records = {at: record for at, record in self.records.items() if at < offset}
            self.end = min(self.end, offset)

    def advance(self, offset: int) -> None:
        assert self.start <= offset <= self.end
        self.records = {at: record for at, record in self.records.items() if at >= offset}
        self.start = offset

    def start_over(self, offset: int) -> None:
        self.records = {}
        self.start = self.end = offset

    def extent(self) -> Extent:
        epochs = LeaderEpochs()
        for offset in sorted(self.records):
            if self.records[offset][0] != epochs.latest:
                epochs.assign(self.records[offset][0], offset)
        return Extent(self.start, self.end, epochs)


@st.composite
def histories(draw: st.DrawFn) -> tuple[ModelLog, ModelLog]:
    """A current log to which everything happened while a future one copied some of it, sometimes. The
    future log misses truncations: it did not exist, as after a crash. What is cut is followed by another epoch."""
    current, future = ModelLog(), ModelLog()
    current.start = current.end = future.start = future.end = draw(st.integers(0, 3))
    epoch = value = 0
    for _ in range(draw(st.integers(1, 12))):
        match draw(st.sampled_from(("append", "append", "copy", "copy", "cut", "delete", "start over", "lose"))):
            case "append":
                for _ in range(draw(st.integers(1, 4))):
                    current.append(epoch, value)
                    value += 1
            case "copy":
                for _ in range(draw(st.integers(1, 6))):
                    apply_step(current, future)
            case "cut":
                current.cut(draw(st.integers(current.start, current.end)))
                epoch += 1
            case "delete":
                current.advance(draw(st.integers(current.start, current.end)))
            case "start over":
                current.start_over(current.end + draw(st.integers(-3, 3)) if current.end > 3 else current.end)
                epoch += 1
            case "lose":  # the future log's disk forgets what was not synced
                future.cut(draw(st.integers(future.start, future.end)))
    return current, future


def apply_step(current: ModelLog, future: ModelLog) -> bool:
    """False if there was nothing left to do."""
    match next_step(current.extent(), future.extent()):
        case StartOver(offset):
            future.start_over(offset)
        case Cut(offset):
            future.cut(offset)
        case AdvanceStart(offset):
            future.advance(offset)
        case Copy(offset):
            future.records[offset] = current.records[offset]
            future.end = offset + 1
        case CaughtUp():
            return False
    return True


@settings(max_examples=examples(500))
@given(histories())
def test_the_future_log_becomes_the_current_one(logs: tuple[ModelLog, ModelLog]) -> None:
    current, future = logs
    for _ in range(STEPS_MAX):
        if not apply_step(current, future):
            break
    else:
        raise AssertionError(f"no end after {STEPS_MAX} steps: {current} {future}")
    assert future == current


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(Event), max_size=30))
def test_a_move_keeps_its_laws(events: list[Event]) -> None:
    move = Move()
    told: str | None = None  # the directory that was last reported to the controller
    acknowledged = False
    for event in events:
        if (move.phase, event) not in TRANSITIONS:
            continue
        actions = move.on(event)
        if event is Event.ACKNOWLEDGED and told == "target":
            acknowledged = True
        assert Action.PROMOTE not in actions or acknowledged, "promoted before the controller knows"
        if Action.ASSIGN_TARGET in actions:
            told = "target"
        if Action.ASSIGN_SOURCE in actions:
            told = "source"
        if move.phase is Phase.CANCELLED:
            assert told != "target", "the controller was left with a directory that the replica is not in"
        if move.phase in (Phase.SWAPPED, Phase.GONE):
            assert told == "target"
            assert not move.can_be_cancelled


def test_every_phase_can_be_left_and_reached() -> None:
    reached = {Phase.ASKED} | {after for after, _ in TRANSITIONS.values()}
    assert reached == set(Phase)
    left = {before for (before, _), (after, _) in TRANSITIONS.items() if after is not before}
    assert set(Phase) - left == {Phase.GONE, Phase.CANCELLED}
