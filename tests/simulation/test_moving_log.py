"""A log that moves to another directory, killed between any two changes to the disks and without power.

Each seed is a story of its own (`moving_story`). To look further:

    SEEDS=2000 pytest tests/simulation/test_moving_log.py
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.io.files import Buffer, FileSystem
from penstock.log import future, promotion
from penstock.log.directory import Checkpoint, LogDirectory
from penstock.log.future import FutureLog
from penstock.log.log import Log
from penstock.log.transaction_index import TransactionIndex
from penstock.model.errors import KafkaError
from penstock.replication import moving
from penstock.simulator.twins.mount import ProcessKilled
from simulation import moving_story
from simulation.moving_story import MovingStory, Violation

SEEDS = range(int(os.environ.get("SEEDS", "40")))
STEPS = 60


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="penstock.log")


@pytest.mark.parametrize("seed", SEEDS)
def test_stories(seed: int) -> None:
    MovingStory(seed).run(STEPS)


def test_stories_have_everything_in_them() -> None:
    moves = restarts = 0
    steps: list[str] = []
    for seed in range(20):
        story = MovingStory(seed)
        story.run(STEPS)
        moves += story.moves
        restarts += story.restarts
        steps += story.steps
    assert moves > 20, moves
    assert restarts > 60, restarts
    assert sum(step.startswith("swap (killed)") for step in steps) > 3
    assert sum(step == "power loss" for step in steps) > 30


@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "without power"])
def test_a_move_survives_death_at_every_change(power_loss: bool) -> None:
    """From the request to the removal of the old files: after each number of changes the process dies once."""
    for operations in range(1_000):
        story = MovingStory(f"every change {operations}")
        for _ in range(5):
            story.append()
        story.flush()
        story.restart(power_loss=False, operations=operations)
        try:
            story.ask()
            story.swap()
        except ProcessKilled:
            story.restart(power_loss=power_loss)
        else:
            if not story.deaths and story.moves:
                break
        story.finish()
        if story.moves == 0 and story.log.directory.startswith("/a/"):
            story.ask()  # it died before the request was on the disk
            story.finish()
        assert story.log.directory == "/b/events-0"
    assert 30 < operations < 1_000


# What the stories must not let pass: each breaks one rule of the move.


def _the_new_name_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def promote(files: FileSystem, target: LogDirectory, log: Log) -> str:
        path = target.directory_of(log.topic_partition)
        files.rename(log.directory, path)
        return path

    patch.setattr(future, "promote", promote)


def _starts_do_not_settle_promotions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving_story, "settle_promotions", _nothing)


def _the_old_log_is_forgotten_too_soon(patch: pytest.MonkeyPatch) -> None:
    def finish(files: FileSystem, directory: str, former: str) -> None:
        files.remove(os.path.join(directory, promotion.FORMER_DIRECTORIES))
        files.sync_directory(directory)

    patch.setattr(moving_story, "finish_promotion", finish)


def _the_future_log_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def flush(self: Log) -> int:
        return self.log_end_offset if self.directory.endswith("-future") else original(self)

    original = Log.flush
    patch.setattr(Log, "flush", flush)


def _cuts_are_not_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FutureLog, "cut", _nothing)
    patch.setattr(moving, "_common_end", lambda current, future: future.end)


def _the_start_need_not_be_durable(patch: pytest.MonkeyPatch) -> None:
    def prepare(self: FutureLog, files: FileSystem, checkpoint: Checkpoint) -> None:
        promotion.prepare_promotion(files, self.log.directory, self.current.directory)

    patch.setattr(LogDirectory, "has_start", lambda *_: True)
    patch.setattr(FutureLog, "prepare", prepare)


def _aborted_transactions_are_not_copied(patch: pytest.MonkeyPatch) -> None:
    def append_preassigned(self: Log, data: Buffer, now_ms: int = -1, **options: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(TransactionIndex, "prepare", _nothing)
            original(self, data, now_ms, **options)

    original = Log.append_preassigned
    patch.setattr(Log, "append_preassigned", append_preassigned)


def _nothing(*_: object, **__: object) -> None:
    """What is left out."""


@pytest.mark.parametrize(
    ("mistake", "law"),
    [
        (_the_new_name_is_not_synced, "OneLog"),
        (_starts_do_not_settle_promotions, "OneLog"),
        (_the_old_log_is_forgotten_too_soon, "OneLog"),
        (_the_future_log_is_not_synced, "NothingLost"),
        (_cuts_are_not_followed, "SameBytes"),
        (_the_start_need_not_be_durable, "NothingComesBack"),
        (_aborted_transactions_are_not_copied, "SameBytes"),
    ],
)
def test_mistakes_are_caught(
    mistake: Callable[[pytest.MonkeyPatch], None], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    broken: Counter[str] = Counter()
    for seed in range(200):
        try:
            MovingStory(f"{mistake.__name__} {seed}").run(STEPS)
        except Violation as violation:
            broken[violation.law] += 1
            if violation.law == law:
                return
        except (AssertionError, KafkaError, OSError, ValueError) as error:
            broken[type(error).__name__] += 1
    pytest.fail(f"{law} did not notice in 200 stories: {broken}")
