"""A producer's identity, and the transactions it writes in.

    with Transaction("127.0.0.1:9092", "etl-7") as transaction:
        write_table(..., transaction=transaction)
        transaction.commit()

Taking a transactional id fences its previous holder and ends its open transaction. A transaction begins with the first
partition that is added to it. Leaving the block without `commit` aborts; after `commit` or `abort` the next one may
begin. A failed write may leave unknown sequence numbers, so after a failure only `abort` is possible, and it takes a
new epoch.

Requests are those of Kafka's first transaction protocol, which every broker supports: partitions are added before they
are written to, and an ending leaves the epoch as it is. So one process may write, and another one, which got the
identity, may end the transaction (`resume`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from penstock.client.errors import ClientError, TimedOut, Unreachable, raise_for
from penstock.client.wire.admin.topics import by_topic
from penstock.client.wire.cluster import MOVING, Cluster, CoordinatorType
from penstock.client.wire.connection import DEFAULT_TIMEOUT_S
from penstock.client.wire.leaders import first_contact
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.declaration import Message
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.records.batch import MAX_SEQUENCE

Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")

TRANSACTION_TIMEOUT_MS = 60_000
# The last versions of the first protocol; Produce, too, must not be newer.
ADD_PARTITIONS_NEWEST = 3
END_NEWEST = 4
PRODUCE_NEWEST = 11
_INIT_NEWEST = 5

_PASSING = MOVING | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
_RETRY_S = 0.02


@dataclass(slots=True)
class ProducerIdentity:
    """A producer id and epoch. Brokers drop duplicates: records with the same identity and sequence."""

    producer_id: int
    producer_epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def sequence(self, partition: TopicPartition) -> int:
        """Return the sequence number of the next record in a partition."""
        return self.sequences.get(partition, 0)

    def advance(self, partition: TopicPartition, records: int) -> None:
        self.sequences[partition] = (self.sequence(partition) + records) & MAX_SEQUENCE


def take_identity(cluster: Cluster, timeout: float) -> ProducerIdentity:
    """Get the identity of an idempotent producer without transactions: unique, and used only by this process."""

    def attempt() -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = cluster.request(request, InitProducerIdResponse)
        raise_for(answer.error_code, None, "cannot get a producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return persistently(cluster, timeout, attempt)


def persistently(cluster: Cluster, timeout: float, attempt: Callable[[], Result]) -> Result:
    """Repeat an attempt through elections and broker failures; all of these requests may be repeated."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return attempt()
        except (KafkaError, ClientError) as error:
            passing = (
                error.code in _PASSING if isinstance(error, KafkaError) else isinstance(error, Unreachable | TimedOut)
            )
            if not passing or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_S)
        _know_more_brokers(cluster)


def _know_more_brokers(cluster: Cluster) -> None:
    """Add the known brokers to the bootstrap addresses, because the one in use may have died."""
    known = cluster.bootstrap
    try:
        found = [(broker.host, broker.port) for broker in cluster.metadata([]).brokers]
        known.extend(address for address in found if address not in known)
    except ClientError:
        known.append(known.pop(0))


class Transaction:
    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        timeout: float = 60.0,
        request_timeout: float = DEFAULT_TIMEOUT_S,
        identity: ProducerIdentity | None = None,
        cluster: Cluster | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Brokers abort it after `transaction_timeout_ms`; `timeout` limits the search for a coordinator.

        Many transactions can share the connections of one `cluster`, which stays open. `options`: security settings by
        Kafka's names.
        """
        self.transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._timeout = timeout
        self._cluster = cluster or Cluster(bootstrap, timeout=request_timeout, options=options)
        self._borrowed = cluster is not None
        self._coordinator_id: int | None = None
        self._partitions: set[TopicPartition] = set()
        self._failed = False
        self._open = identity is not None
        try:
            if not self._borrowed:
                first_contact(self._cluster, lambda: self._cluster.metadata([]))
            self.identity = identity or self._take_identity()
        except BaseException:
            self.close()
            raise

    @classmethod
    def resume(
        cls,
        bootstrap: str,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        timeout: float = 60.0,
        options: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Return the open transaction of another process, to end it; this fences no one."""
        identity = ProducerIdentity(producer_id, producer_epoch)
        return cls(bootstrap, transactional_id, identity=identity, timeout=timeout, options=options)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._open and not self._fenced(error):
                self.abort()
        finally:
            self.close()

    def close(self) -> None:
        """Close without ending the transaction: another process may end it, or the brokers will after the time-out."""
        if not self._borrowed:
            self._cluster.close()

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that take part in the open transaction."""
        return frozenset(self._partitions)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions before anything is written to them in this transaction; begins it."""
        if self._failed:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{self._about}: a write failed, it can only be aborted")
        new = sorted(set(partitions) - self._partitions)
        if not new:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(new).items()
            ],
        )

        def attempt() -> None:
            answer = self._coordinator(request, AddPartitionsToTxnResponse, ADD_PARTITIONS_NEWEST)
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    partition = TopicPartition(topic.name, result.partition_index)
                    raise_for(result.partition_error_code, None, f"{self._about}: cannot add {partition}")

        self._persistently(attempt)
        self._open = True
        self._partitions.update(new)

    def fail(self) -> None:
        """Mark a failed write: its effect is unknown, so the transaction can only be aborted."""
        self._failed = True

    def commit(self) -> None:
        if self._failed:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{self._about}: a write failed, it can only be aborted")
        self._end(committed=True)

    def abort(self) -> None:
        self._end(committed=False)
        if self._failed:
            self.identity = self._take_identity()
            self._failed = False

    def _end(self, *, committed: bool) -> None:
        if not self._open:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )

        def attempt() -> None:
            answer = self._coordinator(request, EndTxnResponse, END_NEWEST)
            raise_for(answer.error_code, None, f"{self._about}: cannot {'commit' if committed else 'abort'}")

        self._persistently(attempt)
        self._open = False
        self._partitions.clear()

    def _take_identity(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)

        def attempt() -> ProducerIdentity:
            answer = self._coordinator(request, InitProducerIdResponse, _INIT_NEWEST)
            raise_for(answer.error_code, None, f"{self._about}: cannot get a producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return self._persistently(attempt)

    def _persistently(self, attempt: Callable[[], Result]) -> Result:
        def at_the_coordinator() -> Result:
            try:
                return attempt()
            except (KafkaError, ClientError):
                self._coordinator_id = None  # the coordinator may have moved
                raise

        return persistently(self._cluster, self._timeout, at_the_coordinator)

    def _coordinator(self, message: Message, response: type[Response], newest: int) -> Response:
        if self._coordinator_id is None:
            (self._coordinator_id,) = self._cluster.coordinators(CoordinatorType.TRANSACTION, [self.transactional_id])
        return self._cluster.request_broker(self._coordinator_id, message, response, newest=newest)

    def _fenced(self, error: BaseException | None) -> bool:
        """Whether we were fenced: then the transaction is not ours to abort, because the new holder has done it."""
        return isinstance(error, KafkaError) and error.code in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )

    @property
    def _about(self) -> str:
        return f"transactional id {self.transactional_id!r}"
