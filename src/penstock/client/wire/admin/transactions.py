"""Transactions: the coordinators' view, the partitions' view of producers, and hanging transactions.

A transaction hangs when a partition waits for its end, but the coordinator does not know that the partition takes part:
no marker will come, and readers of committed records stop there for good. `find_hanging` compares the two views,
`abort` writes the missing marker.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.client.errors import ClientError, UnsupportedApi, raise_for
from penstock.client.wire.admin.topics import by_topic
from penstock.client.wire.cluster import Cluster, CoordinatorType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages import describe_producers as described_producers
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# Longer than the default of transaction.max.timeout.ms: a transaction should have ended, or been aborted, by then.
HANGING_AFTER_MS = 15 * 60 * 1000
_DURATION_SINCE = 1
_PATTERN_SINCE = 2
_PARTITIONS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    coordinator: int
    state: str
    timeout_ms: int
    start_ms: int | None  # None: no transaction is open
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]  # that take part, and do not have its marker yet


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A partition's state of an idempotent producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None  # None: no transaction of the producer has ended here yet
    transaction_start: int | None  # the first offset of the open transaction; None: no transaction is open


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    topic: str
    partition: int
    producer: ProducerState
    transactional_id: str | None = None  # None: no coordinator knows the producer
    will_end: bool = False  # the coordinator knows that this partition takes part, and will write the marker

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class NotHanging(ClientError):
    """A transaction that its coordinator will end should not be aborted in one partition."""


class Transactions:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """List transactions by id; only in these states, with these producer ids, open for this long."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        found = self._cluster.patiently(lambda: self._list(request))
        return sorted(found, key=lambda each: each.transactional_id)

    def describe(self, transactional_ids: Iterable[str]) -> Descriptions:
        wanted = sorted(set(transactional_ids))
        return self._cluster.patiently(lambda: self._describe(wanted))

    def producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that the leaders of partitions have state for."""
        wanted = list(partitions)
        return self._cluster.patiently(lambda: self._producers(wanted))

    def find_hanging(
        self, partitions: Iterable[TopicPartition] | None = None, *, longer_than_ms: int = HANGING_AFTER_MS
    ) -> OpenTransactions:
        """Return old transactions that will never end by themselves, in these or all led partitions."""
        searched = self._led() if partitions is None else sorted(set(partitions))
        now_ms = time.time_ns() // 1_000_000
        old = [each for each in self._open(searched) if now_ms - each.producer.last_timestamp > longer_than_ms]
        hanging = [each for each in self._identified(old) if not each.will_end]
        # A transaction that ended during the search was not hanging.
        open_still = {(each.where, each.producer) for each in self._open(sorted({each.where for each in hanging}))}
        return [each for each in hanging if (each.where, each.producer) in open_still]

    def abort(
        self,
        partition: TopicPartition,
        *,
        start: int | None = None,
        producer_id: int | None = None,
        force: bool = False,
    ) -> OpenTransaction:
        """Abort the open transaction that begins at this offset, or is of this producer, in this partition alone.

        Its other partitions and offsets stay as they are: so this is refused, unless forced, if its coordinator can
        still end the whole transaction.
        """
        found = [
            each
            for each in self._open([partition])
            if (start is None or each.producer.transaction_start == start)
            and (producer_id is None or each.producer.producer_id == producer_id)
        ]
        if len(found) != 1:
            how_many = f"{len(found)} open transactions" if found else "no open transaction"
            which = "".join(
                [
                    "" if start is None else f" that begins at offset {start}",
                    "" if producer_id is None else f" of producer {producer_id}",
                ]
            )
            raise ClientError(f"{partition} has {how_many}{which}")
        (transaction,) = self._identified(found)
        if transaction.will_end and not force:
            raise NotHanging(
                f"the transaction in {partition} does not hang: {transaction.transactional_id!r} is still to end it"
            )
        producer = transaction.producer
        self.write_abort_marker(
            partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch or 0
        )
        return transaction

    def write_abort_marker(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """As `abort`, without checks: for brokers that do not report their producers."""
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=coordinator_epoch,
        )
        self._cluster.patiently(lambda: self._write_marker(partition, marker))

    def _list(self, request: ListTransactionsRequest) -> Listings:
        found: dict[str, TransactionListing] = {}
        for broker_id in self._cluster.broker_ids():
            version = self._cluster.version(ApiKey.LIST_TRANSACTIONS, broker_id)
            if request.duration_filter >= 0 and version < _DURATION_SINCE:
                raise UnsupportedApi(f"broker {broker_id} cannot list transactions by how long they are open")
            if request.transactional_id_pattern is not None and version < _PATTERN_SINCE:
                raise UnsupportedApi(f"broker {broker_id} cannot list transactions by a pattern")
            response = self._cluster.request_broker(broker_id, request, ListTransactionsResponse)
            raise_for(response.error_code, None, f"transactions of broker {broker_id}")
            if response.unknown_state_filters:
                raise ClientError(f"there is no state {', '.join(response.unknown_state_filters)} of transactions")
            for each in response.transaction_states:
                found[each.transactional_id] = TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state, broker_id
                )
        return list(found.values())

    def _describe(self, transactional_ids: Texts) -> Descriptions:
        described: Descriptions = []
        for coordinator, asked in self._cluster.coordinators(CoordinatorType.TRANSACTION, transactional_ids).items():
            request = DescribeTransactionsRequest(transactional_ids=asked)
            response = self._cluster.request_broker(coordinator, request, DescribeTransactionsResponse)
            described += [_described(state, coordinator) for state in response.transaction_states]
        return sorted(described, key=lambda each: each.transactional_id)

    def _producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        found: dict[TopicPartition, tuple[ProducerState, ...]] = {}
        for leader, led in self._cluster.leaders(partitions).items():
            topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic(led).items()]
            request = DescribeProducersRequest(topics=topics)
            for topic in self._cluster.request_broker(leader, request, DescribeProducersResponse).topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    raise_for(result.error_code, result.error_message, f"producers of {partition}")
                    found[partition] = tuple(map(_producer, result.active_producers))
        return found

    def _led(self) -> Partitions:
        return [
            TopicPartition(topic.name or "", partition.partition_index)
            for topic in self._cluster.topics()
            for partition in topic.partitions
            if partition.leader_id >= 0
        ]

    def _open(self, partitions: Partitions) -> OpenTransactions:
        """Query a few hundred partitions at a time, because an answer may be long."""
        return [
            OpenTransaction(partition.topic, partition.partition, producer)
            for first in range(0, len(partitions), _PARTITIONS_AT_ONCE)
            for partition, producers in self.producers(partitions[first : first + _PARTITIONS_AT_ONCE]).items()
            for producer in producers
            if producer.transaction_start is not None
        ]

    def _identified(self, transactions: OpenTransactions) -> OpenTransactions:
        """Add the coordinators' information."""
        if not transactions:
            return []
        listed = self.list(producer_ids={each.producer.producer_id for each in transactions})
        names = {each.producer_id: each.transactional_id for each in listed}
        expected = {each.transactional_id: set(each.partitions) for each in map(self._find, names.values()) if each}
        return [
            dataclasses.replace(
                each,
                transactional_id=names.get(each.producer.producer_id),
                will_end=each.where in expected.get(names.get(each.producer.producer_id, ""), ()),
            )
            for each in transactions
        ]

    def _find(self, transactional_id: str) -> TransactionDescription | None:
        try:
            return self.describe([transactional_id])[0]
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # expired just now
                return None
            raise

    def _write_marker(self, partition: TopicPartition, marker: WritableTxnMarker) -> None:
        (leader,) = self._cluster.leaders([partition])
        request = WriteTxnMarkersRequest(markers=[marker])
        for result in self._cluster.request_broker(leader, request, WriteTxnMarkersResponse).markers:
            for topic in result.topics:
                for each in topic.partitions:
                    raise_for(each.error_code, None, f"cannot abort the transaction in {partition}")


def _described(state: TransactionState, coordinator: int) -> TransactionDescription:
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        message = f"no coordinator knows the transactional id {state.transactional_id!r}"
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message)
    raise_for(state.error_code, None, f"transactional id {state.transactional_id!r}")
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator=coordinator,
        state=state.transaction_state,
        timeout_ms=state.transaction_timeout_ms,
        start_ms=state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions)
        ),
    )


def _producer(state: described_producers.ProducerState) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
        transaction_start=state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    )


# `list` has another meaning inside the class.
Descriptions = list[TransactionDescription]
Listings = list[TransactionListing]
OpenTransactions = list[OpenTransaction]
Partitions = list[TopicPartition]
Texts = list[str]
