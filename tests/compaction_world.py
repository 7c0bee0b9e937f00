"""One compacted partition on a simulated disk, with the broker's cleaner and its child processes."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from penstock.io.files import FileSystem
from penstock.log.cleaner import Cleaner
from penstock.log.log import Log
from penstock.model.ids import TopicPartition
from penstock.records.batch import BatchHeader, check_crc, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.control import ControlType, build_transaction_marker, control_type
from penstock.records.record import Record, iterate_records
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.clock import SimulatedClock
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop
from penstock.simulator.twins.processes import SimulatedProcesses
from verified_appends import append_verified

PARTITION = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"
MEGABYTE = 1024 * 1024
DAY_MS = 86_400_000

Result = TypeVar("Result")


class NodeSettings:
    log_cleaner_backoff_ms = 15_000
    log_cleaner_dedupe_buffer_size = 128 * MEGABYTE
    log_cleaner_io_buffer_load_factor = 0.9
    log_cleaner_io_max_bytes_per_second = 1e300
    socket_request_max_bytes = 100 * MEGABYTE


class World:
    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk(clock=self.clock)
        self.chance = random.Random(seed)
        self.seed = seed
        self.settings = TopicSettings(
            **{"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.0, **settings}
        )
        self.node = NodeSettings()
        self.processes = SimulatedProcesses(self.disk, self.chance)
        self.high_watermark_lag = 0
        self.disk.make_directories("/data")
        self.disk.sync_directory("/")
        self.open()

    # -- the broker

    def open(self, files: FileSystem | None = None, *, clean_shutdown: bool = False, recovery_point: int = 0) -> Log:
        self.files: FileSystem = files or self.disk
        self.log = Log.open(
            self.files,
            DIRECTORY,
            PARTITION,
            self.settings,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=0,
            now_ms=self.clock.now_ms(),
        )
        self.cleaner = Cleaner(self.files, self.clock, self.processes, lambda: [self], lambda: self.node)
        return self.log

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset - self.high_watermark_lag

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def flush(self) -> None:
        self.log.flushed(self.log.flush())

    def restart(self) -> None:
        """kill -9, and start again."""
        recovery_point = self.log.recovery_point
        self.disk.crash()
        self.open(recovery_point=recovery_point)

    def clean(self) -> bool:
        """One cleaning, if one is due; whether it succeeded."""
        return self._run(self.cleaner.clean_dirtiest()) is True

    def clean_round(self) -> int:
        """What the cleaner does when its time has come."""
        return self._run(self.cleaner.clean_round())

    def truncated(self, offset: int) -> None:
        """What the broker does when it cuts the log."""
        self._run(self.cleaner.truncated(self.log, offset))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        loop = SimulatedLoop(self.seed)
        try:
            return loop.run_until_complete(work)
        finally:
            loop.close()

    # -- producers

    def put(self, *pairs: tuple[bytes | None, bytes | None], **options: Any) -> int:
        """One batch; the offset of its first record."""
        now_ms = self.clock.now_ms()
        batch = build_batch([(now_ms, key, value, ()) for key, value in pairs], **options)
        return append_verified(self.log, batch, 0, now_ms).base_offset

    def mark(self, producer_id: int, *, committed: bool, epoch: int = 0) -> int:
        marker = build_transaction_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        return self.log.append_as_leader(marker, read_header(marker), 0, self.clock.now_ms()).base_offset

    def roll(self) -> None:
        self.log.roll(self.clock.now_ms())

    # -- what is in the log

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        return list(read_log(self.log))

    def records(self) -> list[Record]:
        return [record for header, records in self.batches() if not header.is_control for record in records]

    def contents(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]

    def committed(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """What a consumer with isolation level read_committed makes of the log: it drops the data of the
        transactions that are listed as aborted, each until the abort marker."""
        end = self.last_stable_offset
        announced = sorted(self.log.aborted_transactions(0, end), key=lambda each: each.first_offset, reverse=True)
        aborted: set[int] = set()
        found: list[tuple[int, bytes | None, bytes | None]] = []
        for header, records in self.batches():
            if header.base_offset >= end:
                break
            while announced and announced[-1].first_offset <= header.last_offset:
                aborted.add(announced.pop().producer_id)
            if header.is_control:
                if records and control_type(records[0].key) == ControlType.ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found.extend((record.offset, record.key, record.value) for record in records)
        return found

    def names(self) -> list[str]:
        return self.disk.list(DIRECTORY)


def read_log(log: Log) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """All of it, as a consumer gets it."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, MEGABYTE, log.log_end_offset).data
        if not data:
            return
        for position, header in iterate_headers(data):
            check_crc(data, position, header)
            assert header.last_offset >= offset, "a batch came twice"
            offset = header.next_offset
            yield header, list(iterate_records(data, position, header, max_size=MEGABYTE))
