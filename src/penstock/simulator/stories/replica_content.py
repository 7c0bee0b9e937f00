"""The content of a replica's log on its disk: for checkers, which must not disturb the log's own readers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.log.log import Log
from penstock.records.batch import CorruptBatch, check_crc, iterate_headers
from penstock.records.record import iterate_records
from penstock.simulator.requests import MAX_RECORDS_SIZE
from penstock.simulator.stories.cluster_world import Machine


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    stamp: int  # the leader's clock at the append; -1 if records keep their producer's time


class Place(NamedTuple):
    path: str
    begin: int
    end: int


class _Place(NamedTuple):
    segment: int
    end: int


class ReplicaContent:
    """The batches of a log; newly appended ones are read on demand."""

    def __init__(self, machine: Machine, log: Log) -> None:
        self._disk = machine.disk
        self._log = log
        self.batches: list[Batch] = []
        self._places: list[_Place] = []
        self.is_damaged = False
        self.note: Callable[[int, int, bytes], None] | None = None
        """Called with the leader epoch, offset and value of every record, if set."""

    def keep(self, log_start: int, log_end: int) -> int:
        """Forget what has been cut off at either end; returns how many batches are left."""
        batches = self.batches
        while batches and batches[-1].next_offset > log_end:
            del batches[-1], self._places[-1]
        if batches and batches[0].base_offset < log_start:
            gone = sum(batch.next_offset <= log_start for batch in batches)
            del batches[:gone], self._places[:gone]
        return len(batches)

    def read_on(self) -> Iterator[tuple[Batch | None, Batch]]:
        """New batches, each with the one it follows, up to the first damaged one."""
        self.is_damaged = False
        try:
            for segment, position, data in self._unread():
                for at, header in iterate_headers(data):
                    check_crc(data, at, header)
                    if header.next_offset > self._log.log_end_offset:
                        return
                    previous = self.batches[-1] if self.batches else None
                    if previous is not None and header.base_offset != previous.next_offset:
                        raise CorruptBatch(f"{header.base_offset} follows {previous.next_offset}")
                    stamp = header.max_timestamp if header.is_log_append_time else -1
                    batch = Batch(header.base_offset, header.next_offset, header.leader_epoch, header.crc, stamp)
                    if self.note is not None:
                        for record in iterate_records(data, at, header, max_size=MAX_RECORDS_SIZE):
                            self.note(header.leader_epoch, record.offset, record.value or b"")
                    self.batches.append(batch)
                    self._places.append(_Place(segment, position + at + header.size))
                    yield previous, batch
        except CorruptBatch:
            self.is_damaged = True

    def _unread(self) -> Iterator[tuple[int, int, bytes]]:
        last = self._places[-1] if self._places else _Place(-1, 0)
        for segment in self._log.segments:
            if segment.base_offset >= last.segment:
                position = last.end if segment.base_offset == last.segment else 0
                if segment.size > position:
                    yield segment.base_offset, position, self._read(segment.path, segment.size - position, position)

    def _read(self, path: str, size: int, position: int) -> bytes:
        return self._disk.peek(path, size, position)

    def is_on_disk(self, offset: int) -> bool:
        """Whether the last batch below `offset` would survive a power loss."""
        number = bisect_right(self.batches, offset, key=lambda batch: batch.next_offset) - 1
        if number < 0:
            return True
        base, end = self._places[number]
        begin = self._places[number - 1].end if number and self._places[number - 1].segment == base else 0
        (path,) = [segment.path for segment in self._log.segments if segment.base_offset == base]
        durable = self._disk.durable(path)
        return durable is not None and durable[begin:end] == self._read(path, end - begin, begin)

    @property
    def ends(self) -> tuple[int, int]:
        return self._log.log_start_offset, self._log.log_end_offset

    def whole(self) -> bytes:
        """Every byte between the log's ends."""
        return b"".join(self._read(segment.path, segment.size, 0) for segment in self._log.segments)

    def whole_from(self, offset: int) -> bytes:
        """Every byte of the batches that have records at or above `offset`.

        Batches below it may have rotted: nothing repairs what is deleted. So one of them may seem to hold it, too.
        """
        data = self.whole()
        begin = len(data)
        for at, header in iterate_headers(data):
            if header.base_offset <= offset < header.next_offset:
                begin = at
        return data[begin:]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._log.segments)

    def places(self) -> list[Place]:
        """The positions of the batches."""
        return [
            Place(segment.path, at, at + header.size)
            for segment in self._log.segments
            for at, header in iterate_headers(self._read(segment.path, segment.size, 0))
        ]

    def values(self) -> dict[int, bytes]:
        return dict(values_of(self.whole()))


def values_of(data: bytes | memoryview) -> Iterator[tuple[int, bytes]]:
    """Offsets and values; CorruptBatch if a batch is not what was written."""
    for position, header in iterate_headers(data):
        check_crc(data, position, header)
        for record in iterate_records(data, position, header, max_size=MAX_RECORDS_SIZE):
            yield record.offset, record.value or b""
