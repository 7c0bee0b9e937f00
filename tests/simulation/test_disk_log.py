"""The durability of one partition's log, on a disk that crashes and loses power.

Each seed is a story of its own (`log_story`). To see a failure again, run the test that failed by its name, say

    pytest "tests/simulation/test_disk_log.py::test_stories[17]"

and to look further, set SEEDS: `SEEDS=2000 pytest tests/simulation/test_disk_log.py`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.io.files import File
from penstock.log import loading, log, recovery, stored
from penstock.log.log import Log
from penstock.log.log_files import LogFiles
from penstock.log.producer_snapshot import ProducerSnapshots
from penstock.log.segment import Segment
from penstock.log.unsynced import Unsynced
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import BatchHeader
from penstock.simulator.twins.disk import Event, SimulatedDisk
from simulation.log_story import ACTIONS, DIRECTORY, Story

SEEDS = range(int(os.environ.get("SEEDS", "40")))
STEPS = 60


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Stories are full of errors, and the log reports every one."""
    caplog.set_level("CRITICAL", logger="penstock.log")


@pytest.mark.parametrize("seed", SEEDS)
def test_stories(seed: int) -> None:
    Story(seed).run(STEPS)


def test_stories_have_everything_in_them() -> None:
    """A step that never happens, or a disk that never takes anything, would prove nothing."""
    counts: Counter[str] = Counter()
    details: list[str] = []
    for seed in range(20):
        story = Story(seed)
        story.run(STEPS)
        counts.update(story.counts)
        details += story.steps
    assert min(counts[action.__name__] for action in ACTIONS) > 2, counts
    lost = [step for step in details if step.startswith("power_loss") and "(0 of" not in step]
    assert len(lost) > 10, "power losses hardly lose anything"
    for event in ("meanwhile", "killed", "refused", "at once"):
        assert any(event in step for step in details), event


# What the stories must not let pass: each breaks one rule of the log.


def _nothing(*_: object, **__: object) -> None:
    """A sync that is left out."""


def _flush_without_directories(patch: pytest.MonkeyPatch) -> None:
    def sync(unsynced: Unsynced) -> None:
        unsynced._directories.clear()
        original(unsynced)

    original = Unsynced.sync
    patch.setattr(Unsynced, "sync", sync)


def _flush_without_data(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stored, "sync_file", _nothing)


def _recovery_without_crc(patch: pytest.MonkeyPatch) -> None:
    class Anything:
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

    patch.setattr(recovery, "crc32c", lambda data: Anything())


def _recovery_from_the_end(patch: pytest.MonkeyPatch) -> None:
    def load(*arguments: object, **options: object) -> object:
        options["recovery_point"] = 1 << 40
        return original(*arguments, **options)  # type: ignore[arg-type]

    original = loading.load
    patch.setattr(log, "load", load)


def _holes_are_fine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loading._Loading, "_hole_after", lambda *_: False)


def _truncation_without_sync(patch: pytest.MonkeyPatch) -> None:
    def truncate_to(self: Log, offset: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(stored, "sync_file", _nothing)
            original(self, offset)

    original = Log.truncate_to
    patch.setattr(Log, "truncate_to", truncate_to)


def _flushed_whatever_was_cut(patch: pytest.MonkeyPatch) -> None:
    def flushed(self: Log, offset: int) -> None:
        self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))

    patch.setattr(Log, "flushed", flushed)


def _torn_writes_stay(patch: pytest.MonkeyPatch) -> None:
    """After a failed append the rest of it is neither cut nor overwritten."""

    def append(self: Segment, data: bytes, size: int, last_offset: int, max_timestamp: int) -> None:
        before = self.size
        try:
            original(self, data, size, last_offset, max_timestamp)
        except OSError:
            self.size = before + 10
            raise

    original = Segment.append
    patch.setattr(Segment, "append", append)


def _old_snapshots_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerSnapshots, "remove_above", _nothing)


def _deletion_in_any_order(patch: pytest.MonkeyPatch) -> None:
    def set_aside(self: LogFiles, segments: list[Segment]) -> list[str]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self.system, "sync_directory", _nothing)
            return original(self, segments)

    original = LogFiles.set_aside
    patch.setattr(LogFiles, "set_aside", set_aside)


def _aborts_behind_their_markers(patch: pytest.MonkeyPatch) -> None:
    """The marker is written and acknowledged, and then there may be no space for the entry in the index."""

    def replay(self: Log, batch: bytes, position: int, header: BatchHeader, now_ms: int) -> None:
        try:
            recovery.replay_batch(self.active_segment, self.producers, batch, position, header, now_ms)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error

    patch.setattr(Log, "_prepare_abort", _nothing)
    patch.setattr(Log, "_take_back", _nothing)
    patch.setattr(Log, "_replay", replay)


def _failed_cuts_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def finish_cut(self: Log) -> None:
        try:
            original(self)
        finally:
            self._before_append = None

    original = Log._finish_cut
    patch.setattr(Log, "_finish_cut", finish_cut)


def _the_last_cut_counts(patch: pytest.MonkeyPatch) -> None:
    """Of several during one flush."""

    def end_at(self: Log, segment: Segment, position: int, offset: int) -> None:
        self._cut_during_flush = 1 << 62
        original(self, segment, position, offset)

    original = Log._end_at
    patch.setattr(Log, "_end_at", end_at)


@pytest.mark.parametrize(
    ("mistake", "focus"),
    [
        (_flush_without_directories, ["roll", "flush", "power_loss"]),
        (_flush_without_data, ["flush", "power_loss"]),
        (_recovery_without_crc, ["power_loss"]),
        (_recovery_from_the_end, ["power_loss"]),
        (_holes_are_fine, ["roll", "power_loss"]),
        (_truncation_without_sync, ["truncate_and_append", "power_loss"]),
        (_flushed_whatever_was_cut, ["append_many", "flush", "power_loss"]),
        (_torn_writes_stay, ["append_to_a_failing_disk", "crash"]),
        (_old_snapshots_are_believed, ["roll", "append_idempotent", "power_loss"]),
        (_aborts_behind_their_markers, ["append_to_a_failing_disk", "append_in_transaction"]),
        (_failed_cuts_are_forgotten, ["truncate_on_a_failing_disk", "append_idempotent", "crash"]),
        (_the_last_cut_counts, ["append_many", "flush", "power_loss"]),
        (_deletion_in_any_order, ["append_many", "roll", "delete_records", "delete_old_segments", "power_loss"]),
    ],
)
def test_mistakes_are_caught(
    mistake: Callable[[pytest.MonkeyPatch], None], focus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in range(300):
        try:
            Story(f"{mistake.__name__} {seed}", focus=focus).run(STEPS)
        except (AssertionError, KafkaError, OSError, ValueError):
            return
    pytest.fail("300 stories did not notice")


def test_a_flush_is_over_only_when_everything_is_synced() -> None:
    """At the seam: the batch is written and synced before the result is there that an acknowledgement waits for."""
    story = Story(1, faults=False)
    trace: list[Event] = []
    story.disk.trace = trace
    story.append()
    assert story.log.flush() == story.log.log_end_offset
    path = f"{DIRECTORY}/00000000000000000000.log"
    written = next(number for number, event in enumerate(trace) if event[:2] == ("write", path))
    synced = next(number for number, event in enumerate(trace) if event == ("sync", path))
    assert written < synced
    assert path not in story.disk.unsynced()
    assert DIRECTORY not in story.disk.unsynced()


def test_a_sync_that_fails_fails_the_flush() -> None:
    story = Story(2, faults=False)
    story.append()
    story.disk.fail("sync", "*.log")
    with pytest.raises(KafkaError):
        story.log.flush()
    assert story.log.recovery_point == 0


def test_a_rotten_batch_is_never_served() -> None:
    """One flipped bit anywhere in a log that was closed cleanly: found at the start or when it is read."""
    for seed in range(30):
        chance = random.Random(seed)
        story = Story(seed, faults=False)
        for _ in range(12):
            story.append()
        story.log.close()
        story._write_checkpoints()
        logs = [name for name in story.disk.list(DIRECTORY) if name.endswith(".log")]
        path = f"{DIRECTORY}/{chance.choice(logs)}"
        position = chance.randrange(story.disk.size(path))
        story.disk.corrupt(path, position, mask=1 << chance.randrange(8))
        story.disk.crash()
        _assert_only_good_batches(story)


def _assert_only_good_batches(story: Story) -> None:
    known = {batch.data for batch in story.batches}
    try:
        story.log = Log.open(
            story.disk,
            DIRECTORY,
            story.log.topic_partition,
            story.settings,
            clean_shutdown=True,
            recovery_point=story.recovery_checkpoint,
            log_start_offset=0,
            now_ms=story.clock.now_ms(),
        )
        served = story.read_everything()
    except KafkaError:
        return
    # Offset and leader epoch are not under the CRC: a bit of theirs shows as an offset out of order, or an old epoch.
    for batch in served:
        assert any(batch.data[21:] == good[21:] for good in known)


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list(DIRECTORY):
        file: File = disk.open(f"{DIRECTORY}/{name}", read_only=True)
        found[name] = file.pread(file.size(), 0)
        file.close()
    return found


def test_opening_twice_changes_nothing_more() -> None:
    """Recovery is idempotent: what a second one finds is what the first one left."""
    for seed in range(20):
        story = Story(seed)
        try:
            for _ in range(30):
                story._step()
        finally:
            story.disk.heal()
        story._fall_over("power_loss")
        story._restart()
        first = (files_of(story.disk), story.log.log_end_offset)
        story._fall_over("crash")
        story._restart()
        assert (files_of(story.disk), story.log.log_end_offset) == first
