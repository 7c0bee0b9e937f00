"""Compaction in a real child process, on a real disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compaction_world import MEGABYTE, NodeSettings, read_log
from penstock.io.clock import RealClock
from penstock.io.files import RealFileSystem
from penstock.io.processes import RealProcesses
from penstock.log import compaction
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


class InThisProcess:
    async def run(self, module: str, arguments: Sequence[str]) -> int:
        return compaction.main(RealFileSystem(), list(arguments))


def open_log(tmp_path: Path, segment_bytes: int, index_interval_bytes: int = 4096) -> Log:
    return Log.open(
        RealFileSystem(),
        str(tmp_path / "topic-0"),
        TopicPartition("topic", 0),
        TopicSettings(
            cleanup_policy=frozenset({"compact"}),
            min_cleanable_dirty_ratio=0.0,
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
        ),
        clean_shutdown=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=RealClock().now_ms(),
    )


def put(log: Log, key: bytes, value: bytes) -> None:
    now_ms = RealClock().now_ms()
    batch = build_batch([(now_ms, key, value, ())])
    log.append_as_leader(batch, read_header(batch), 0, now_ms)


def test_a_log_is_compacted_by_a_child_process(tmp_path: Path) -> None:
    files = RealFileSystem()
    clock = RealClock()
    log = open_log(tmp_path, segment_bytes=MEGABYTE)
    for number in range(2000):
        put(log, b"key%d" % (number % 100), b"x" * 1000)
    log.roll(clock.now_ms())
    replica = Replica(log)
    cleaner = Cleaner(files, clock, RealProcesses(), lambda: [replica], NodeSettings)
    assert asyncio.run(cleaner.clean_dirtiest())
    kept = [record.offset for _, records in read_log(log) for record in records]
    assert kept == list(range(1900, 2000))
    assert log.size < 200_000
    log.close()
    assert not [name for name in files.list(log.directory) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_readers_on_other_threads_never_see_a_swap_by_halves(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=4096, index_interval_bytes=300)
    replica = Replica(log)
    cleaner = Cleaner(RealFileSystem(), RealClock(), InThisProcess(), lambda: [replica], NodeSettings)
    done = threading.Event()

    def read_over_and_over() -> int:
        reads = 0
        while not done.is_set():
            offsets = [record.offset for _, records in read_log(log) for record in records]
            assert offsets == sorted(set(offsets))
            log.offset_for_timestamp(0)
            reads += 1
        return reads

    async def clean_over_and_over() -> None:
        for round_number in range(15):
            for number in range(30):
                put(log, b"key%d" % ((number * round_number) % 37), b"x" * (round_number + number))
            log.roll(RealClock().now_ms())
            assert await cleaner.clean_dirtiest()

    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(read_over_and_over) for _ in range(2)]
        try:
            asyncio.run(clean_over_and_over())
        finally:
            done.set()
        assert all(reader.result() for reader in readers)
    log.close()
