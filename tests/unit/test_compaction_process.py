"""Compaction in a real child process, on a real disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from compaction_world import MEGABYTE, NodeSettings, read_log
from penstock.io.clock import RealClock
from penstock.io.files import RealFileSystem
from penstock.io.processes import RealProcesses
from penstock.log.cleaner import Cleaner
from penstock.log.log import Log
from penstock.model.ids import TopicPartition
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.settings.topic import TopicSettings


class Replica:
    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.log_end_offset


def test_a_log_is_compacted_by_a_child_process(tmp_path: Path) -> None:
    files = RealFileSystem()
    clock = RealClock()
    settings = TopicSettings(cleanup_policy=frozenset({"compact"}), segment_bytes=MEGABYTE)
    log = Log.open(
        files,
        str(tmp_path / "topic-0"),
        TopicPartition("topic", 0),
        settings,
        clean_shutdown=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=clock.now_ms(),
    )
    for number in range(2000):
        batch = build_batch([(clock.now_ms(), b"key%d" % (number % 100), b"x" * 1000, ())])
        log.append_as_leader(batch, read_header(batch), 0, clock.now_ms())
    log.roll(clock.now_ms())
    replica = Replica(log)
    cleaner = Cleaner(files, clock, RealProcesses(), lambda: [replica], NodeSettings)
    assert asyncio.run(cleaner.clean_dirtiest())
    kept = [record.offset for _, records in read_log(log) for record in records]
    assert kept == list(range(1900, 2000))
    assert log.size < 200_000
    log.close()
    assert not [name for name in files.list(log.directory) if name.endswith((".cleaned", ".swap", ".deleted"))]
