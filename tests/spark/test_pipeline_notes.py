"""The small files beside checkpoints, when the process that writes them is killed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipelines.engine.backfill_ranges import NOTE, agreed
from penstock.pipelines.operate.backfill import Backfill
from penstock.pipelines.sinks.hadoop_files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(Exception):
    pass


class DyingSystem:
    """A file system on which so many calls are made before the process is killed."""

    def __init__(self, system: Any, calls: int) -> None:
        self._system = system
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        if not self._calls:
            raise Killed
        self._calls -= 1
        return getattr(self._system, name)


def test_a_note_is_the_earlier_one_or_the_new_one(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "columns.json")
    Files(spark, path).write_note(path, "earlier")
    for calls in itertools.count():
        files = Files(spark, path)
        files._system = DyingSystem(files._system, calls)
        try:
            files.write_note(path, "new")
        except Killed:
            assert Files(spark, path).read_note(path) == "earlier"
        else:
            break
    assert calls
    assert Files(spark, path).read_note(path) == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["columns.json"]


def test_a_backfill_that_was_killed_before_it_had_ranges_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "orders-may")
    files = Files(spark, place)
    (tmp_path / "orders-may").mkdir()
    (tmp_path / "orders-may" / f"{NOTE}.draft").write_text('{"asked"')
    wanted = Backfill(name="orders-may", begin="earliest")

    assert agreed(files, place, "orders", wanted, {}) == {}
    assert agreed(files, place, "orders", wanted, {}) == {}
    assert files.names(place) == [NOTE]
