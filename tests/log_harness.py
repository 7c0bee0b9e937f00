"""A log on a simulated disk, for the tests of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.log.log import Appended, Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.records.batch import BatchHeader, iterate_headers
from penstock.records.builder import build_batch
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.disk import SimulatedDisk
from verified_appends import append_verified

PARTITION = TopicPartition("events", 0)
DIRECTORY = "/data/events-0"
TOPIC_ID = bytes(range(16))
NOW = 1_000_000


def topic(**settings: Any) -> TopicSettings:
    return TopicSettings(**{"segment_bytes": 1000, "index_interval_bytes": 100, **settings})


def open_log(
    disk: SimulatedDisk,
    settings: TopicSettings | None = None,
    *,
    clean: bool = False,
    recovery_point: int | None = 0,
    log_start_offset: int = 0,
    now_ms: int = NOW,
) -> Log:
    return Log.open(
        disk,
        DIRECTORY,
        PARTITION,
        settings or topic(),
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        topic_id=TOPIC_ID,
    )


def reopen(log: Log, disk: SimulatedDisk, settings: TopicSettings | None = None) -> Log:
    """Stop and start cleanly."""
    log.close()
    return open_log(
        disk,
        settings or log.settings,
        clean=True,
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
    )


def append(
    log: Log, count: int = 1, *, size: int = 20, timestamp: int = NOW, epoch: int = 0, now_ms: int = NOW, **batch: Any
) -> Appended:
    data = build_batch([(timestamp, b"key", b"v" * size, ())] * count, **batch)
    return append_verified(log, memoryview(data), epoch, now_ms)


def headers(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """Every batch from `offset` on, read piece by piece."""
    found: list[BatchHeader] = []
    next_offset = log.log_start_offset if offset is None else offset
    while next_offset < log.log_end_offset:
        data = log.read(next_offset, max_bytes, log.log_end_offset).data
        if not data:
            break
        found += [header for _, header in iterate_headers(data)]
        next_offset = found[-1].next_offset
    return found


def offsets(log: Log, offset: int | None = None) -> list[int]:
    return [header.base_offset for header in headers(log, offset)]


def content(disk: SimulatedDisk, name: str) -> bytes:
    file = disk.open(f"{DIRECTORY}/{name}", read_only=True)
    data = file.pread(1 << 30, 0)
    file.close()
    return data


def overwrite(disk: SimulatedDisk, name: str, data: bytes) -> None:
    file = disk.open(f"{DIRECTORY}/{name}", create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


def refusal(code: ErrorCode, call: Callable[..., object], *arguments: object, **options: object) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **options)
    assert caught.value.code == code
    return caught.value
