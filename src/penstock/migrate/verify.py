"""Proves that a copy has what a source has, by reading both: what the move removes was there before.

The two logs are read side by side, from the later of their beginnings to the high watermark at the start:

- The batches of a topic that is not compacted are the same bytes in every replica, and are compared as bytes.
- A compacted topic is compared by its content (`content`). One replica may have removed a value because a later one,
  beyond the end, took its place. So if values differ, both are read on to the present end, and compared again.

A copy may begin later than the source if retention allows that: replicas remove segments for themselves, and their
segments end at different offsets. What the copy lacks must be older than `retention.ms`, or the copy must have
`retention.bytes` without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.migrate.content import Batch, Content
from penstock.migrate.replica_reader import Bounds
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.records.batch import CorruptBatch, check_crc

# How long a follower may take to remove what its leader has removed.
_SETTLE_S: Final = 10.0
_POLL_S: Final = 0.5
# A beginning that is removed while it is read is read again so often.
_ATTEMPTS: Final = 20
# In each of them both logs are read on. A value that is missing for another reason than a later one stays missing.
_EXTENSIONS: Final = 10
# What the clocks of machines may differ by.
_CLOCKS_MS: Final = 60_000


class ReplicasDiffer(Exception):
    """A copy has not what the source has; the message has where."""


@dataclass(frozen=True, slots=True)
class Cleanup:
    """What a topic's settings let each replica remove from its log."""

    compacts: bool = False
    deletes: bool = True
    # -1: no limit.
    retention_ms: int = -1
    retention_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Verified:
    partition: TopicPartition
    # The source and the copy.
    brokers: tuple[int, int]
    start_offset: int
    end_offset: int
    compared_bytes: int


class Reader(Protocol):
    """See `ReplicaReader`."""

    broker_id: int

    def bounds(self) -> Bounds: ...

    def batches(self, start: int, end: int) -> Iterator[Batch]: ...


def verify(
    source: Reader,
    copy: Reader,
    partition: TopicPartition,
    cleanup: Cleanup,
    *,
    read: Callable[[int], None] = lambda size: None,
) -> Verified:
    """ReplicasDiffer if the copy has not what the source has. `read` is called with the bytes of each batch."""
    for _ in range(_ATTEMPTS):
        try:
            return _Comparison(source, copy, partition, cleanup, read).run()
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
    raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition} loses its beginning faster than it can be read")


class _Comparison:
    def __init__(
        self,
        source: Reader,
        copy: Reader,
        partition: TopicPartition,
        cleanup: Cleanup,
        read: Callable[[int], None],
    ) -> None:
        self._source = source
        self._copy = copy
        self._partition = partition
        self._cleanup = cleanup
        self._read = read
        self._about = f"{partition} on brokers {source.broker_id} and {copy.broker_id}"
        self._compared = 0

    def run(self) -> Verified:
        of_source, of_copy = self._bounds()
        start = max(of_source.start, of_copy.start)
        end = max(of_source.high_watermark, of_copy.high_watermark)
        if self._cleanup.compacts:
            end = self._same_content(start, end)
        else:
            self._same_bytes(start, end)
        brokers = (self._source.broker_id, self._copy.broker_id)
        return Verified(self._partition, brokers, start, end, self._compared)

    def _bounds(self) -> tuple[Bounds, Bounds]:
        """Of the source and the copy, when the copy lacks nothing at its beginning that it should have."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            # In this order: what is removed meanwhile, the source lacks too.
            of_copy, of_source = self._copy.bounds(), self._source.bounds()
            if of_copy.start <= of_source.start or self._may_lack(of_source.start, of_copy):
                return of_source, of_copy
            if time.monotonic() > deadline:
                raise ReplicasDiffer(
                    f"{self._about} differ: the one begins at offset {of_source.start}, and the other at "
                    f"{of_copy.start}, though retention does not remove what is between"
                )
            time.sleep(_POLL_S)

    def _may_lack(self, start: int, copy: Bounds) -> bool:
        """Whether retention may have removed what the source has before the beginning of the copy."""
        cleanup = self._cleanup
        if not cleanup.deletes:
            return False
        if cleanup.retention_ms >= 0:
            expired = int(time.time() * 1000) - cleanup.retention_ms + _CLOCKS_MS
            lacking = self._batches(self._source, start, copy.start)
            if all(0 <= header.max_timestamp < expired for header, _ in lacking):
                return True
        if cleanup.retention_bytes < 0:
            return False
        kept = 0
        for _, data in self._batches(self._copy, copy.start, copy.high_watermark):
            kept += len(data)
            if kept >= cleanup.retention_bytes:
                return True
        return False

    def _batches(self, reader: Reader, start: int, end: int) -> Iterator[Batch]:
        for header, data in reader.batches(start, end):
            try:
                check_crc(data, 0, header)
            except CorruptBatch as error:
                raise ReplicasDiffer(f"{self._partition} on broker {reader.broker_id} is damaged: {error}") from error
            self._compared += len(data)
            self._read(len(data))
            yield header, data

    def _same_bytes(self, start: int, end: int) -> None:
        one, other = self._batches(self._source, start, end), self._batches(self._copy, start, end)
        missing: Batch | None = None
        while True:
            left, right = next(one, missing), next(other, missing)
            if left is None and right is None:
                return
            if left is None or right is None:
                present = left or right
                assert present is not None
                raise ReplicasDiffer(f"{self._about} differ: only one has a batch at offset {present[0].base_offset}")
            if left[1] != right[1]:
                offset = min(left[0].base_offset, right[0].base_offset)
                raise ReplicasDiffer(f"{self._about} differ at offset {offset}")

    def _same_content(self, start: int, end: int) -> int:
        """Returns up to where both were read."""
        left, right = Content(start), Content(start)
        for _ in range(_EXTENSIONS):
            left.read(self._batches(self._source, start, end))
            right.read(self._batches(self._copy, start, end))
            ours, theirs = left.values(), right.values()
            if ours == theirs:
                return end
            latest = max(self._source.bounds().high_watermark, self._copy.bounds().high_watermark)
            if latest <= end:
                break  # nothing has taken the place of what is missing
            start, end = end, latest
        differing = sum(1 for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
        raise ReplicasDiffer(f"{self._about} differ in the last values of {differing} keys")
