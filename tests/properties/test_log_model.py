"""The log against a plain list, on a disk that fails.

The model is the list of batches that should be in the log, oldest first. After a clean stop or a kill everything is
there; after a power loss at least everything that was flushed, and of the rest a prefix.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from narrowing import present
from penstock.log import index
from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.records.batch import BatchHeader, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.record import iterate_records
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.disk import SimulatedDisk
from property_examples import examples

PARTITION = TopicPartition("events", 0)
DIRECTORY = "/data/events-0"
PRODUCERS = 3


@pytest.fixture(autouse=True)
def small_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few entries are in the file, and searching it takes more than one step."""
    monkeypatch.setattr(index, "TAIL_ENTRIES", 3)
    monkeypatch.setattr(index, "_WINDOW_ENTRIES", 2)


class Batch(NamedTuple):
    base_offset: int
    size: int  # of records
    value: bytes
    timestamp: int
    producer_id: int
    base_sequence: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.size


class LogAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.disk.make_directories("/data")
        self.disk.sync_directory("/")
        self.settings = TopicSettings(segment_bytes=700, index_interval_bytes=90, retention_bytes=-1, retention_ms=-1)
        self.batches: list[Batch] = []
        self.deleted: list[Batch] = []  # a power loss may bring them back: the removal of names is not synced
        self.start = self.end = 0
        self.flushed = 0
        self.checkpointed_recovery_point = self.checkpointed_start = 0
        self.now_ms = 1_000_000
        self.epoch = 0
        self.serial = 0

    @initialize()
    def open_first(self) -> None:
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> Log:
        return Log.open(
            self.disk,
            DIRECTORY,
            PARTITION,
            self.settings,
            clean_shutdown=clean,
            recovery_point=self.checkpointed_recovery_point,
            log_start_offset=self.checkpointed_start,
            now_ms=self.now_ms,
            topic_id=bytes(range(16)),
        )

    # -- writing

    def build(self, count: int, size: int, producer_id: int, sequence: int) -> tuple[bytearray, bytes]:
        self.serial += 1
        value = self.serial.to_bytes(4, "big") * (1 + size // 4)
        records = [(self.now_ms, b"k", value, ())] * count
        if producer_id < 0:
            return build_batch(records), value
        return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence), value

    def next_sequence(self, producer_id: int) -> int:
        last = self.last_of(producer_id)
        return 0 if last is None else last.base_sequence + last.size

    def last_of(self, producer_id: int) -> Batch | None:
        return next((batch for batch in reversed(self.batches) if batch.producer_id == producer_id), None)

    @rule(count=st.integers(1, 3), size=st.integers(0, 120), producer=st.integers(-1, PRODUCERS - 1))
    def append(self, count: int, size: int, producer: int) -> None:
        if producer >= 0 and self.last_of(producer) is None:
            producer = -1 if self.log.producers.get(producer) else producer
        sequence = self.next_sequence(producer) if producer >= 0 else -1
        data, value = self.build(count, size, producer, sequence)
        appended = self.log.append_as_leader(data, read_header(data), self.epoch, self.now_ms)
        assert (appended.base_offset, appended.last_offset) == (self.end, self.end + count - 1)
        assert not appended.duplicate
        self.batches.append(Batch(self.end, count, value, self.now_ms, producer, sequence))
        self.end += count

    @rule(producer=st.integers(0, PRODUCERS - 1))
    def send_again(self, producer: int) -> None:
        last = self.last_of(producer)
        if last is None:
            return
        data = build_batch(
            [(last.timestamp, b"k", last.value, ())] * last.size,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=last.base_sequence,
        )
        appended = self.log.append_as_leader(data, read_header(data), self.epoch, self.now_ms)
        assert appended.duplicate
        assert appended.base_offset == last.base_offset

    @rule(room=st.integers(0, 200), size=st.integers(0, 120))
    def append_to_a_full_disk(self, room: int, size: int) -> None:
        self.disk.fill(leave=room)
        data, value = self.build(1, size, -1, -1)
        try:
            self.log.append_as_leader(data, read_header(data), self.epoch, self.now_ms)
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
        else:
            self.batches.append(Batch(self.end, 1, value, self.now_ms, -1, -1))
            self.end += 1
        self.disk.heal()

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(ms=st.integers(1, 10_000))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def new_leader_epoch(self) -> None:
        self.epoch += 1

    # -- removing

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.advance_log_start(self.start + int((self.end - self.start) * share))
        self.start = self.log.log_start_offset

    @rule(keep=st.sampled_from(["bytes", "time", "start"]), share=st.floats(0, 1))
    def retain(self, keep: str, share: float) -> None:
        if keep == "bytes":
            self.settings = TopicSettings(
                segment_bytes=700, index_interval_bytes=90, retention_bytes=int(self.log.size * share), retention_ms=-1
            )
        elif keep == "time":
            self.settings = TopicSettings(segment_bytes=700, index_interval_bytes=90, retention_ms=int(10_000 * share))
        self.log.update_settings(self.settings)
        for path in self.log.delete_old_segments(self.now_ms, self.end):
            assert path.endswith(".deleted")
            self.disk.remove(path)
        self.start = self.log.log_start_offset
        first = self.log.segments[0].base_offset
        self.deleted += [batch for batch in self.batches if batch.base_offset < first]
        self.batches = [batch for batch in self.batches if batch.base_offset >= first]
        self.settings = TopicSettings(segment_bytes=700, index_interval_bytes=90, retention_bytes=-1, retention_ms=-1)
        self.log.update_settings(self.settings)

    @precondition(lambda self: self.batches)
    @rule(chosen=st.floats(0, 0.99))
    def truncate(self, chosen: float) -> None:
        offset = self.batches[int(len(self.batches) * chosen)].base_offset
        if offset < self.start:
            return
        self.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch.base_offset < offset]
        self.end = offset
        self.epoch += 1
        # A leader of a newer epoch caused this; what was cut must not be taken for current after a power loss.
        self.flush()
        self.flushed = min(self.flushed, offset)

    # -- stopping

    @rule()
    def flush(self) -> None:
        offset = self.log.flush()
        assert offset == self.end
        self.log.flushed(offset)
        self.flushed = self.end

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed_recovery_point = self.log.recovery_point
        self.checkpointed_start = self.log.log_start_offset

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.checkpoint()
        self.flushed = self.end
        assert self.disk.open_paths() == []
        self.log = self.open(clean=True)
        assert self.log.recovered_bytes == 0

    @rule()
    def kill(self) -> None:
        self.disk.crash()
        self.log = self.open(clean=False)
        self.start = max(self.checkpointed_start, self.log.segments[0].base_offset)

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        self.disk.power_loss(random.Random(seed))
        self.log = self.open(clean=False)
        self.start = self.log.log_start_offset
        end = self.log.log_end_offset
        assert self.flushed <= end <= self.end
        assert self.start <= max(end, self.checkpointed_start)
        self.batches = [batch for batch in self.deleted + self.batches if batch.base_offset < end]
        self.batches = [batch for batch in self.batches if batch.base_offset >= self.log.segments[0].base_offset]
        if self.deleted and self.batches:
            # What came back from among the deleted is a matter of luck; what was never deleted is not.
            found = {header.base_offset for header in self.headers(self.start)}
            kept = [batch for batch in self.batches if batch in self.deleted and batch.base_offset not in found]
            self.batches = [batch for batch in self.batches if batch not in kept]
        self.deleted = []
        self.end = end

    # -- reading

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 300, self.log.log_end_offset).data
            if not data:
                return
            for _, header in iterate_headers(data):
                yield header
                offset = header.next_offset

    @invariant()
    def ends_where_it_should(self) -> None:
        if hasattr(self, "log"):
            assert self.log.log_end_offset == self.end
            assert self.log.log_start_offset == self.start
            assert self.log.recovery_point <= self.end

    @invariant()
    def holds_what_was_appended(self) -> None:
        if not hasattr(self, "log"):
            return
        found = []
        offset = self.start
        while offset < self.end:
            piece = present(self.log.read_cached(offset, 400, self.end))
            if not piece.data:
                break
            for position, header in iterate_headers(piece.data):
                records = list(iterate_records(piece.data, position, header, max_size=1 << 20))
                assert [record.offset for record in records] == [*range(header.base_offset, header.next_offset)]
                found.append((header.base_offset, header.count, records[0].value, records[0].timestamp))
                offset = header.next_offset
        expected = [
            (batch.base_offset, batch.size, batch.value, batch.timestamp)
            for batch in self.batches
            if batch.next_offset > self.start
        ]
        assert found == expected

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 0.999), max_bytes=st.integers(0, 900), limit=st.floats(0, 1), waiting=st.booleans())
    def read(self, share: float, max_bytes: int, limit: float, waiting: bool) -> None:
        offset = self.start + int((self.end - self.start) * share)
        boundaries = [batch.base_offset for batch in self.batches if batch.base_offset >= offset] + [self.end]
        max_offset = boundaries[int((len(boundaries) - 1) * limit)]
        piece = present((self.log.read if waiting else self.log.read_cached)(offset, max_bytes, max_offset))
        wanted = [batch for batch in self.batches if batch.next_offset > offset and batch.next_offset <= max_offset]
        got = [header.base_offset for _, header in iterate_headers(piece.data)]
        assert got == [batch.base_offset for batch in wanted[: len(got)]]
        assert got or not wanted
        assert len(got) == 1 or len(piece.data) <= max_bytes or not got
        if got:
            assert piece.first_offset == got[0]
            assert sum(header.size for _, header in iterate_headers(piece.data)) == len(piece.data)

    @precondition(lambda self: self.batches)
    @rule(chosen=st.floats(0, 0.999))
    def find_by_time(self, chosen: float) -> None:
        timestamp = self.batches[int(len(self.batches) * chosen)].timestamp
        expected = next(
            (
                max(batch.base_offset, self.start)
                for batch in self.batches
                if batch.timestamp >= timestamp and batch.next_offset > self.start
            ),
            None,
        )
        found = self.log.offset_for_timestamp(timestamp)
        assert (None if found is None else found.offset) == expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = hypothesis_settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
