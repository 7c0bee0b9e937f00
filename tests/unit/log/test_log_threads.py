"""Worker threads read and flush while the event loop's thread appends, rolls and deletes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_harness import NOW, PARTITION, append, topic
from penstock.io.files import RealFileSystem
from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import check_crc, iterate_headers

APPENDS = 1500


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    """Threads switch often, and none waits long for its turn."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.00005)
    yield
    sys.setswitchinterval(before)


def test_readers_see_whole_batches_in_order(tmp_path: Path) -> None:
    files = RealFileSystem()
    log = Log.open(
        files,
        str(tmp_path / "events-0"),
        PARTITION,
        topic(segment_bytes=4000, index_interval_bytes=200, retention_bytes=20_000),
        clean_shutdown=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW,
    )
    finished = threading.Event()

    def follow(max_bytes: int) -> int:
        """Read up to the end, as it is each time; the number of batches seen."""
        offset, seen = 0, 0
        while True:
            last_round = finished.is_set()
            end = log.log_end_offset
            try:
                data = log.read(offset, max_bytes, end).data
            except KafkaError as error:
                assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
                offset = log.log_start_offset
                continue
            for position, header in iterate_headers(data):
                check_crc(data, position, header)
                assert header.base_offset == offset or seen == 0
                offset = header.next_offset
                seen += 1
            assert offset <= end
            if last_round and offset == end == log.log_end_offset:
                return seen

    def flush() -> list[int]:
        flushed = []
        while not finished.is_set():
            flushed.append(log.flush())
        return flushed

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(follow, max_bytes) for max_bytes in (300, 5000)]
        flusher = pool.submit(flush)
        for number in range(APPENDS):
            append(log, 1, size=number % 50)
            if number % 200 == 0:
                for path in log.delete_old_segments(NOW, log.log_end_offset):
                    files.remove(path)
        finished.set()
        assert all(reader.result() > 50 for reader in readers)
        flushed = flusher.result()
    assert flushed == sorted(flushed)
    log.flushed(flushed[-1])
    log.close()
