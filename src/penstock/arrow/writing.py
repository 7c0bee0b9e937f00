"""Writes tables to topics: a row is a record, and every row is acknowledged or named in an error.

A row goes to the partition of its key, as with Kafka's own producer. Rows without a key go to all partitions in turn,
and rows that name a partition go to that one. Each partition has one batch in flight, so its rows stay in order
whatever must be sent again, and the next batch is encoded meanwhile. With idempotence (the default) a batch that is
sent again, also after the death of a leader, is written once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.arrow.batching import EncodedBatch, PartitionStream
from penstock.arrow.bounds import OffsetRange
from penstock.arrow.encoding import ByteColumn, column, partition_numbers, serializer_of
from penstock.arrow.errors import RecordTooLarge, WriteFailed
from penstock.arrow.rows import ColumnNames, pieces_of, rows_of
from penstock.client.errors import BadSetting, ClientError, Closed
from penstock.client.wire.closing import Closing
from penstock.client.wire.leaders import STALE, Leaders
from penstock.client.wire.transaction import PRODUCE_NEWEST, ProducerIdentity, Transaction, take_identity
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.columnar import Ints
from penstock.records.columnar_encoding import order_by_partition, partition_by_key
from penstock.records.compression import CODEC_NAMES

BATCH_BYTES = 1_000_000  # below Kafka's default for max.message.bytes
RECORD_BYTES_MAX = 100 * 1024 * 1024  # socket.request.max.bytes by default: beyond it, brokers disconnect
REQUEST_S = 10.0
TIMEOUT_S = 120.0
_ACKS = {0: 0, "0": 0, 1: 1, "1": 1, -1: -1, "-1": -1, "all": -1}
_RETRY_S = 0.05
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclass(slots=True)
class Written:
    """The number of rows written, and their offsets if the broker returned them (not with acks=0)."""

    rows: int = 0
    offsets: dict[TopicPartition, OffsetRange] = field(default_factory=dict)

    def add(self, partition: TopicPartition, base_offset: int, rows: int) -> None:
        self.rows += rows
        if base_offset >= 0:
            known = self.offsets.get(partition)
            self.offsets[partition] = OffsetRange(known.first if known else base_offset, base_offset + rows)


class Writer(Closing):
    """Writes any number of tables, with one producer id."""

    def __init__(
        self,
        bootstrap: str,
        *,
        compression: str = "none",
        compression_level: int | None = None,
        acks: int | str = "all",
        idempotent: bool = True,
        transaction: Transaction | None = None,
        batch_bytes: int = BATCH_BYTES,
        timeout: float = TIMEOUT_S,
        request_timeout: float = REQUEST_S,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if compression not in CODEC_NAMES:
            raise BadSetting(f"compression={compression!r} is not one of {', '.join(CODEC_NAMES)}")
        if acks not in _ACKS:
            raise BadSetting(f"acks={acks!r} is not 0, 1 or 'all'")
        if (idempotent or transaction is not None) and _ACKS[acks] != -1:
            raise BadSetting(
                f"acks={acks!r} needs idempotent=False: writing exactly once needs the acknowledgement of every replica"
            )
        self._codec = int(CODEC_NAMES[compression])
        self._level = compression_level
        self._acks = _ACKS[acks]
        self._idempotent = idempotent
        self._transaction = transaction
        self._batch_bytes = batch_bytes
        self._timeout = timeout
        self._leaders = Leaders(bootstrap, timeout=request_timeout, options=options)
        self._identity: ProducerIdentity | None = None
        self._turn = random.randrange(2**16)  # the first partition for a row without a key
        self._refresh_wanted = False
        self._refreshed = 0.0

    def close(self) -> None:
        self._leaders.close()

    @property
    def transaction(self) -> Transaction | None:
        return self._transaction

    @transaction.setter
    def transaction(self, transaction: Transaction) -> None:
        """The next transaction to write in; connections stay open."""
        if self._transaction is None:
            raise BadSetting("this writer was made without a transaction")
        self._transaction = transaction

    def write(
        self,
        topic: str,
        table: Any,
        *,
        key: str | None = None,
        value: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
    ) -> Written:
        """Write all rows of a table (or record batch, or anything that Arrow can read); acknowledged on return."""
        names = ColumnNames(
            key=key,
            value=value,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            key_serializer=serializer_of(key_serializer, "key"),
            value_serializer=serializer_of(value_serializer, "value"),
        )
        written = Written()
        if topic not in self._leaders.topics:
            self._leaders.find([topic])
        first_row = 0
        try:
            for piece in pieces_of(table):
                self._write_piece(topic, piece, names, first_row, written)
                first_row += len(piece)
        except BaseException:
            # Nothing waits for batches in flight, and whether they are written is unknown.
            self._leaders.disconnect()
            self._identity = None
            if self._transaction is not None:
                self._transaction.fail()
            raise
        return written

    def _write_piece(self, topic: str, piece: Any, names: ColumnNames, first_row: int, written: Written) -> None:
        partitions = len(self._leaders.topics[topic].leaders)
        rows = rows_of(topic, piece, names, first_row)
        chosen = self._choose(piece, names, rows.keys, partitions, first_row)
        bounds, order = np.zeros(partitions + 1, np.int64), np.empty(len(piece), np.int64)
        order_by_partition(chosen, bounds, order)
        used = [index for index in range(partitions) if bounds[index] < bounds[index + 1]]
        identity = self._take_identity([TopicPartition(topic, index) for index in used])
        streams = {
            TopicPartition(topic, index): PartitionStream(
                TopicPartition(topic, index),
                rows,
                order[bounds[index] : bounds[index + 1]],
                batch_bytes=self._batch_bytes,
                codec=self._codec,
                level=self._level,
                identity=identity,
                transactional=self._transaction is not None,
            )
            for index in used
        }
        self._send_all(streams, first_row, written)

    def _choose(self, piece: Any, names: ColumnNames, keys: ByteColumn, partitions: int, first_row: int) -> Ints:
        chosen = np.empty(len(piece), np.int32)
        self._turn = int(partition_by_key(*keys, partitions, self._turn % partitions, chosen))
        if names.partition is not None:
            given = partition_numbers(
                column(piece, names.partition, "partition"), names.partition, partitions, first_row
            )
            chosen = np.where(given >= 0, given, chosen)
        return chosen

    def _take_identity(self, partitions: Iterable[TopicPartition]) -> ProducerIdentity | None:
        if self._transaction is not None:
            self._transaction.add(partitions)
            return self._transaction.identity
        if self._identity is None and self._idempotent:
            self._identity = take_identity(self._leaders.cluster, self._timeout)
        return self._identity

    # -- Sending.

    def _send_all(self, streams: dict[TopicPartition, PartitionStream], first_row: int, written: Written) -> None:
        unfinished = dict(streams)
        while unfinished:
            for stream in unfinished.values():
                self._send_next(stream, unfinished, first_row, written)
            behind = next((stream for stream in unfinished.values() if stream.can_prepare), None)
            if behind is not None:
                behind.prepare()
            waiting = 0.0 if behind is not None else _RETRY_S if self._refresh_wanted else 1.0
            for event in self._leaders.wait(waiting):
                if event.error is not None:
                    self._lost(event.broker_id, unfinished, str(event.error), first_row)
                for answer in event.answers:
                    ((result,),) = (topic.partition_responses for topic in answer.response.responses)
                    self._answered(streams[answer.about.partition], result, first_row, written)
            unfinished = {each: stream for each, stream in unfinished.items() if not stream.finished}

    def _send_next(
        self,
        stream: PartitionStream,
        streams: dict[TopicPartition, PartitionStream],
        first_row: int,
        written: Written,
    ) -> None:
        """Send the stream's next batch, unless one is in flight; later, if its leader cannot be reached."""
        if stream.under_way is not None or stream.finished:
            return
        if stream.prepared is None:
            stream.prepare()
        batch = stream.prepared
        assert batch is not None
        if len(batch.data) > RECORD_BYTES_MAX:
            row = first_row + stream.row_of(batch)
            raise RecordTooLarge(batch.partition.topic, row, len(batch.data), f"more than {RECORD_BYTES_MAX} bytes")
        stream.prepared, stream.under_way = None, batch
        batch.since = batch.since or time.monotonic()
        self._refresh()
        leader = self._leaders.leader_of(stream.partition)
        if leader is None:
            self._again(stream, f"{stream.partition} has no leader", first_row)
            return
        batch.broker_id = leader.broker_id
        try:
            channel = self._leaders.channel(leader.broker_id)
            newest = PRODUCE_NEWEST if self._transaction is not None else None
            channel.send(self._request(batch), batch, newest=newest, answered=self._acks != 0)
        except Closed:
            raise
        except ClientError as error:
            self._leaders.drop(leader.broker_id)
            self._lost(leader.broker_id, streams, str(error), first_row)
            return
        if self._acks == 0:
            while channel.has_outgoing:
                for event in self._leaders.wait(1.0):
                    if event.error is not None:
                        raise WriteFailed(f"{self._rows_of(stream, batch, first_row)}: {event.error}")
            written.add(stream.partition, -1, stream.confirm().rows)

    def _request(self, batch: EncodedBatch) -> ProduceRequest:
        topic, index = batch.partition
        data = TopicProduceData(
            name=topic,
            topic_id=self._leaders.topics[topic].topic_id,
            partition_data=[PartitionProduceData(index=index, records=batch.data)],
        )
        return ProduceRequest(
            transactional_id=self._transaction.transactional_id if self._transaction else None,
            acks=self._acks,
            timeout_ms=int(self._leaders.cluster.timeout * 1000),
            topic_data=[data],
        )

    def _answered(
        self, stream: PartitionStream, result: PartitionProduceResponse, first_row: int, written: Written
    ) -> None:
        code = ErrorCode(result.error_code)
        batch = stream.under_way
        assert batch is not None
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            stream.confirm()
            written.add(stream.partition, result.base_offset, batch.rows)
        elif code in _TOO_LARGE:
            if batch.rows == 1:
                row = first_row + stream.row_of(batch)
                reason = result.error_message or code.text
                raise RecordTooLarge(batch.partition.topic, row, batch.uncompressed_size, reason)
            stream.shrink()
        elif code in STALE:
            self._again(stream, code.text, first_row)
        else:
            where = self._rows_of(stream, batch, first_row)
            for error in result.record_errors:
                row = first_row + stream.row_of(batch, error.batch_index)
                raise WriteFailed(f"row {row} is refused: {error.batch_index_error_message or code.text}")
            raise KafkaError(code, f"{where}: {result.error_message or code.text}")

    def _lost(
        self, broker_id: int, streams: dict[TopicPartition, PartitionStream], problem: str, first_row: int
    ) -> None:
        """Batches in flight to a broker will not be answered."""
        for stream in streams.values():
            if stream.under_way is not None and stream.under_way.broker_id == broker_id:
                self._again(stream, problem, first_row)

    def _again(self, stream: PartitionStream, problem: str, first_row: int) -> None:
        batch = stream.under_way
        assert batch is not None
        assert batch.since is not None
        if time.monotonic() - batch.since > self._timeout:
            where = self._rows_of(stream, batch, first_row)
            raise WriteFailed(f"{where} are not confirmed after {self._timeout:g} s: {problem}")
        stream.retry()
        self._refresh_wanted = True

    def _refresh(self) -> None:
        if self._refresh_wanted and time.monotonic() - self._refreshed > _RETRY_S:
            self._refresh_wanted = self._leaders.refresh() is not None
            self._refreshed = time.monotonic()

    def _rows_of(self, stream: PartitionStream, batch: EncodedBatch, first_row: int) -> str:
        first, last = stream.row_of(batch), stream.row_of(batch, batch.rows - 1)
        return f"{batch.rows} rows for {stream.partition} (among rows {first_row + first} to {first_row + last})"


def write_table(
    bootstrap: str,
    topic: str,
    table: Any,
    *,
    key: str | None = None,
    value: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    key_serializer: Any = None,
    value_serializer: Any = None,
    compression: str = "none",
    compression_level: int | None = None,
    acks: int | str = "all",
    idempotent: bool = True,
    transaction: Transaction | None = None,
    batch_bytes: int = BATCH_BYTES,
    timeout: float = TIMEOUT_S,
    request_timeout: float = REQUEST_S,
    options: Mapping[str, str] | None = None,
) -> Written:
    """Writes every row of a table as a record of a topic; all are acknowledged on return.

    table            a pyarrow.Table or RecordBatch, or anything that Arrow can read: a pandas or polars frame.
    key, value       names of columns: binary, string, int16 to float64 (big-endian, as Java's serializers write them);
                     others with a `key_serializer` or `value_serializer`: a serializer, a function to bytes, or "json".
                     Default: "value", and "key" if it exists.
    headers          a column of list<struct<key: string, value: binary>> or map<string, binary>; default: "headers" if
                     it exists.
    partition        a column with the partition of each row; if it is null or not given, the key decides as in Kafka's
                     own producer (murmur2), and rows without a key take turns.
    timestamp        a column of timestamps; if it is null or not given, the current time.
    compression      "none", "gzip", "snappy", "lz4" or "zstd", with its `compression_level`.
    acks             "all", 1 or 0 replicas that acknowledge; less than "all" needs idempotent=False.
    idempotent       what must be sent again is written once.
    transaction      a `Transaction` to write in: readers of committed records see the rows when it is committed.
    batch_bytes      the maximum size of a record batch before compression; adapts to a topic that accepts less.
    timeout          how long a batch may stay unacknowledged while leaders move or brokers are down.
    options          security settings by Kafka's names; or `bootstrap` refers to them, such as "@prod".
    """
    with Writer(
        bootstrap,
        compression=compression,
        compression_level=compression_level,
        acks=acks,
        idempotent=idempotent,
        transaction=transaction,
        batch_bytes=batch_bytes,
        timeout=timeout,
        request_timeout=request_timeout,
        options=options,
    ) as writer:
        return writer.write(
            topic,
            table,
            key=key,
            value=value,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
        )
