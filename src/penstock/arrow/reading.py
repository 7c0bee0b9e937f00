"""Reads partitions from their leaders: one fetch in flight to each, the next one sent before the last is decoded.

The positions are advanced first, which needs only the batch headers of an answer. So the leader works on the next fetch
while this answer is decoded and used. Memory holds one answer per leader and the record batch that is being built. A
channel reuses its receive buffer: the records of an answer are valid until the next `wait`.

Leaders may move or die meanwhile. A partition that cannot be read is tried again with fresh metadata until it has made
no progress for `timeout` seconds. Nothing is read twice, because positions advance only with the records that were
returned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.arrow.bounds import OffsetRange
from penstock.arrow.columns import Columns
from penstock.arrow.errors import ArrowError, DataLost, ReadStalled, UnreadableBatch
from penstock.client.errors import ClientError, Closed, raise_for
from penstock.client.wire.admin.topics import EARLIEST, by_topic
from penstock.client.wire.leaders import STALE, Leaders
from penstock.client.wire.log_offsets import LogOffsets
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.records.batch import CorruptBatch, iterate_headers
from penstock.records.columnar import Located, decode_batches, wanted_batches

logger = logging.getLogger(__name__)

MAX_WAIT_MS = 500
MIN_BYTES = 1
METADATA_S = 30.0
_PARTITIONS_A_FETCH = 4  # how many pieces of full size fit into an answer
_ANSWER_BYTES_MAX = 128 * 1024 * 1024
_RETRY_S = 0.05
_EMPTY_ANSWERS = 2
_STUCK_TIMES = 5
_END_OF_TIME = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    isolation: int
    batch_bytes: int  # of a partition in one answer, and so about the size of a record batch
    batch_rows: int  # at most, in a record batch
    timeout: float
    skip_lost: bool
    grows: bool  # also read added partitions, from their beginning


@dataclass(slots=True)
class _Position:
    offset: int
    end: int
    not_before: float = 0.0  # when to try again
    stuck_since: float | None = None
    stuck_times: int = 0
    empty_answers: int = 0

    def moved(self) -> None:
        self.stuck_since, self.stuck_times, self.empty_answers = None, 0, 0


class _Piece(NamedTuple):
    """Batches of a partition to decode, in an answer's buffer."""

    partition: TopicPartition
    records: memoryview
    batches: list[Located]
    aborted: list[tuple[int, int]]
    first: int
    end: int


class Reader:
    def __init__(
        self,
        leaders: Leaders,
        ranges: dict[TopicPartition, OffsetRange],
        columns: Columns,
        settings: ReadSettings,
    ) -> None:
        self._leaders = leaders
        self._columns = columns
        self._settings = settings
        self._offsets = LogOffsets(leaders, settings.isolation, settings.timeout)
        self._positions = {each: _Position(first, end) for each, (first, end) in ranges.items()}
        self._busy: set[int] = set()  # brokers with a fetch in flight
        self._refreshed = time.monotonic()
        self._refresh_wanted = False

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to fetch, by partition."""
        return {partition: position.offset for partition, position in self._positions.items()}

    def record_batches(self) -> Iterator[tuple[TopicPartition, Any]]:
        while self._send_fetches():
            for event in self._leaders.wait(_RETRY_S if self._retrying() else 1.0):
                self._busy.discard(event.broker_id)
                if event.error is not None:
                    self._trouble(None, str(event.error))
                for answer in event.answers:
                    pieces = self._advance(answer.response)
                    self._send_fetches()
                    for piece in pieces:
                        yield from self._decode(piece)

    # -- Requests.

    def _send_fetches(self) -> bool:
        """Send a fetch to every leader that has none in flight; False if there is nothing left to read."""
        unfinished = {each: position for each, position in self._positions.items() if position.offset < position.end}
        if not unfinished:
            return False
        self._refresh()
        now = time.monotonic()
        by_leader: dict[int, list[FetchPartition]] = {}
        order: dict[int, list[TopicPartition]] = {}
        for partition, position in unfinished.items():
            if position.not_before > now:
                continue
            leader = self._leaders.leader_of(partition)
            if leader is None:
                self._trouble(partition, f"{partition} has no leader")
            elif leader.broker_id not in self._busy:
                order.setdefault(leader.broker_id, []).append(partition)
                by_leader.setdefault(leader.broker_id, []).append(
                    FetchPartition(
                        partition=partition.partition,
                        current_leader_epoch=leader.epoch,
                        fetch_offset=position.offset,
                        partition_max_bytes=min(self._settings.batch_bytes, _ANSWER_BYTES_MAX),
                    )
                )
        for broker_id, asked in by_leader.items():
            self._fetch(broker_id, order[broker_id], asked)
        return True

    def _fetch(self, broker_id: int, partitions: list[TopicPartition], asked: list[FetchPartition]) -> None:
        wanted = dict(zip(partitions, asked, strict=True))
        topics = [
            FetchTopic(
                topic=name,
                topic_id=self._leaders.topics[name].topic_id,
                partitions=[wanted[TopicPartition(name, index)] for index in indexes],
            )
            for name, indexes in by_topic(partitions).items()
        ]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=MIN_BYTES,
            max_bytes=min(self._settings.batch_bytes * _PARTITIONS_A_FETCH, _ANSWER_BYTES_MAX),
            isolation_level=self._settings.isolation,
            topics=topics,
        )
        try:
            self._leaders.channel(broker_id).send(request, None)
            self._busy.add(broker_id)
        except Closed:
            raise
        except ClientError as error:
            self._leaders.drop(broker_id)
            for partition in partitions:
                self._trouble(partition, str(error))

    def _retrying(self) -> bool:
        return self._refresh_wanted or any(position.stuck_since is not None for position in self._positions.values())

    def _refresh(self) -> None:
        age = time.monotonic() - self._refreshed
        if age > METADATA_S or (self._refresh_wanted and age > _RETRY_S):
            problem = self._leaders.refresh()
            self._refreshed = time.monotonic()
            self._refresh_wanted = problem is not None
            if self._settings.grows:
                self._take_new_partitions()

    def _take_new_partitions(self) -> None:
        for name in self._leaders.topics:
            for index in self._leaders.topics[name].leaders:
                self._positions.setdefault(TopicPartition(name, index), _Position(0, _END_OF_TIME))

    # -- Answers.

    def _advance(self, response: FetchResponse) -> list[_Piece]:
        """Advance the positions of all partitions of an answer; returns what to decode."""
        if response.error_code:
            self._trouble(None, ErrorCode(response.error_code).text)
            return []
        pieces = []
        empty = not response.throttle_time_ms and not any(
            data.records for topic in response.responses for data in topic.partitions
        )
        for topic in response.responses:
            name = topic.topic or self._leaders.names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                position = self._positions.get(partition)
                if position is None:
                    continue
                if data.error_code:
                    self._refused(partition, position, data)
                else:
                    pieces += self._advance_partition(partition, position, data, empty)
        return pieces

    def _advance_partition(
        self, partition: TopicPartition, position: _Position, data: PartitionData, empty: bool
    ) -> list[_Piece]:
        records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
        batches = self._batches(partition, records)
        first = position.offset
        if not batches:
            self._idle(partition, position, data, empty)
            return []
        position.offset = max(first, batches[-1][1].next_offset)
        position.moved()
        # A partition that had data goes behind the others: an answer may not have space for all.
        self._positions[partition] = self._positions.pop(partition)
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        return [_Piece(partition, records, batches, aborted, first, position.end)]

    def _batches(self, partition: TopicPartition, records: memoryview) -> list[Located]:
        try:
            batches = list(iterate_headers(records))
        except CorruptBatch as error:
            raise _located(partition, error) from error
        if records and not batches:
            raise _located(partition, CorruptBatch(f"{len(records)} bytes without a whole batch"))
        return batches

    def _idle(self, partition: TopicPartition, position: _Position, data: PartitionData, empty: bool) -> None:
        """An empty result is normal at the end of the log, and if other partitions filled the answer.

        Before the end bound it means, if the whole answer was empty several times, that compaction has left nothing up
        to the bound; or that a new leader has not caught up yet.
        """
        readable = data.last_stable_offset if self._settings.isolation else data.high_watermark
        if position.end == _END_OF_TIME or not empty:
            position.moved()
        elif readable < position.end:
            self._stuck(partition, position, f"its leader has records up to {readable} only")
        else:
            position.empty_answers += 1
            if position.empty_answers == _EMPTY_ANSWERS:
                position.offset = position.end

    def _refused(self, partition: TopicPartition, position: _Position, data: PartitionData) -> None:
        code = ErrorCode(data.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(partition, position)
        elif code in STALE:
            self._trouble(partition, code.text)
        else:
            raise_for(code, None, f"cannot read {partition} at offset {position.offset}")

    def _out_of_range(self, partition: TopicPartition, position: _Position) -> None:
        """Before the start of the log: lost. After its end: a new leader may be behind for a moment."""
        start = self._offsets.at([partition], EARLIEST)[partition]
        if position.offset >= start:
            self._trouble(partition, f"offset {position.offset} is behind the end of its log")
        elif self._settings.skip_lost:
            logger.warning("%s: offsets %d to %d are not in the log any more", partition, position.offset, start - 1)
            position.offset = min(start, position.end)
            position.moved()
        else:
            raise DataLost(partition, position.offset, start)

    def _trouble(self, partition: TopicPartition | None, problem: str) -> None:
        """Look for leaders again; give up on a partition that has had errors for too long."""
        self._refresh_wanted = True
        if partition is not None:
            self._stuck(partition, self._positions[partition], problem)
            return
        for each, position in self._positions.items():
            if position.offset < position.end:
                self._stuck(each, position, problem)

    def _stuck(self, partition: TopicPartition, position: _Position, problem: str) -> None:
        now = time.monotonic()
        position.stuck_since = position.stuck_since or now
        position.stuck_times += 1  # counted, as the time may have passed in the caller's code
        position.not_before = now + _RETRY_S
        stuck = now - position.stuck_since
        if stuck > self._settings.timeout and position.stuck_times > _STUCK_TIMES:
            end = "" if position.end == _END_OF_TIME else f" (to be read up to {position.end})"
            raise ReadStalled(f"{partition} at offset {position.offset}{end} got nowhere for {stuck:.0f} s: {problem}")

    # -- Records.

    def _decode(self, piece: _Piece) -> Iterator[tuple[TopicPartition, Any]]:
        partition, records, batches, aborted, first, end = piece
        try:
            wanted = wanted_batches(records, batches, aborted, first, end)
            for spans in decode_batches(records, wanted, first, end, group_bytes=self._settings.batch_bytes * 2):
                batch = self._columns.record_batch(spans, partition)
                for start in range(0, len(batch), self._settings.batch_rows):
                    yield partition, batch.slice(start, self._settings.batch_rows)
        except KafkaError as error:
            raise _located(partition, error) from error


def _located(partition: TopicPartition, error: KafkaError) -> ArrowError:
    return UnreadableBatch(f"{partition}: {error.message}")
