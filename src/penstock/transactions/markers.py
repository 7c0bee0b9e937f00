"""The outbox of markers: every partition of a decided transaction is told how it ended, until it has heard.

Laws:

- A marker leaves only when the record that decides is committed. A coordinator that lost it would decide anew, and some
  partitions would have been told otherwise.
- A partition is told again until its leader says that the marker is replicated. Leaders know repetitions.
- A transaction completes when all partitions have heard. A partition that does not exist any more needs no marker.
- Markers carry the coordinator epoch, the leader epoch of the coordinator's partition: leaders refuse those of an older
  one than they have heard of.

All of this is soft state. A coordinator that has loaded its partition starts over with every prepared transaction.

The runtime takes what is due, sends it, and tells what came of it (`answered`, `lost`), once for everything it took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.transactions.records import by_topic
from penstock.transactions.state import Status, Transaction

# Who leads a partition; NO_LEADER if nobody does now, None if there is no such partition.
LeaderOf: TypeAlias = Callable[[TopicPartition], int | None]
NO_LEADER: Final = -1
# How long a partition that could not be told is left alone.
RETRY_BACKOFF_MS: Final = 50

_WRITTEN: Final = frozenset(
    {
        ErrorCode.NONE,
        # Nothing of a transaction can be in a log of so old a format.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        # The producer is past that epoch in this partition: nothing of the transaction is open there. Kafka would tell
        # no other partition either, and leave the transaction prepared until the coordinator moves.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class Markers(NamedTuple):
    """The markers of one transaction for the partitions that one broker leads."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]
    attempt: int
    """Tells an answer from the late answer to an earlier attempt."""

    def message(self) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_result=self.committed,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                for topic, partitions in by_topic(self.partitions).items()
            ],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.transaction_version,
        )


def request_of(sent: Sequence[Markers]) -> WriteTxnMarkersRequest:
    """To one broker, from any number of coordinators."""
    return WriteTxnMarkersRequest(markers=[markers.message() for markers in sent])


def errors_of(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, int]]:
    """What a broker answered, by producer id: no two transactions of a request have the same."""
    errors: dict[int, dict[TopicPartition, int]] = {}
    for marker in response.markers:
        of_producer = errors.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                of_producer[TopicPartition(topic.name, partition.partition_index)] = partition.error_code
    return errors


class _Ending:
    """A decided transaction, and who has not heard of it."""

    __slots__ = ("attempts", "not_before_ms", "position", "transaction", "waiting")

    def __init__(self, transaction: Transaction, position: int) -> None:
        self.transaction = transaction
        self.position = position
        self.waiting = set(transaction.partitions)
        # Partitions whose marker is on its way, by attempt.
        self.attempts: dict[int, tuple[TopicPartition, ...]] = {}
        self.not_before_ms = 0

    @property
    def complete(self) -> bool:
        return not self.waiting and not self.attempts


class MarkerOutbox:
    __slots__ = ("_attempt", "_coordinator_epoch", "_due", "_endings", "_fenced", "_next_ms", "_undecided")

    def __init__(self, coordinator_epoch: int) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._endings: dict[str, _Ending] = {}
        # Prepared, but the record is not committed yet; in the order of their records.
        self._undecided: list[_Ending] = []
        # Those with partitions that wait; dicts keep the order of arrival.
        self._due: dict[str, None] = {}
        # None of them before this.
        self._next_ms = 0
        self._attempt = 0
        self._fenced = False

    def __len__(self) -> int:
        """Transactions whose markers are not all written."""
        return len(self._endings)

    @property
    def fenced(self) -> bool:
        """A partition has heard of a newer coordinator: this one is about to learn that it has been replaced."""
        return self._fenced

    def prepared(self, transaction: Transaction, position: int) -> None:
        """The record that decides it is the `position`-th this shard has replayed."""
        ending = _Ending(transaction, position)
        self._endings[transaction.transactional_id] = ending
        self._undecided.append(ending)

    def forget(self, transactional_id: str) -> None:
        """It is complete."""
        self._endings.pop(transactional_id, None)
        self._due.pop(transactional_id, None)

    def committed(self, position: int) -> None:
        """Everything up to that record is committed: those transactions are decided for good."""
        decided = 0
        for ending in self._undecided:
            if ending.position > position:
                break
            decided += 1
            transactional_id = ending.transaction.transactional_id
            if self._endings.get(transactional_id) is ending:
                self._due[transactional_id] = None
                self._next_ms = 0
        del self._undecided[:decided]

    @property
    def deadline(self) -> int | None:
        """When `take` may have something to give: 0 for now, None if everything is said or on its way."""
        return self._next_ms if self._due and not self._fenced else None

    def take(self, leader_of: LeaderOf, now_ms: int) -> tuple[dict[int, list[Markers]], list[Transaction]]:
        """What is due, by broker, and the transactions that have nobody left to be told."""
        by_broker: dict[int, list[Markers]] = {}
        complete = []
        for transactional_id in () if self._fenced else tuple(self._due):
            ending = self._endings[transactional_id]
            if ending.not_before_ms > now_ms:
                continue
            leaders: dict[int, list[TopicPartition]] = {}
            for partition in sorted(ending.waiting):
                leader = leader_of(partition)
                if leader == NO_LEADER:
                    ending.not_before_ms = now_ms + RETRY_BACKOFF_MS
                    continue
                ending.waiting.discard(partition)
                if leader is not None:
                    leaders.setdefault(leader, []).append(partition)
            for leader, partitions in leaders.items():
                by_broker.setdefault(leader, []).append(self._attempt_at(ending, tuple(partitions)))
            if not ending.waiting:
                del self._due[transactional_id]
            if ending.complete:
                complete.append(ending.transaction)
        self._next_ms = min((self._endings[due].not_before_ms for due in self._due), default=0)
        return by_broker, complete

    def answered(self, sent: Markers, errors: Mapping[TopicPartition, int], now_ms: int) -> Transaction | None:
        """A leader answered, with an error code for each partition; the transaction, if it is complete now."""
        if any(error == ErrorCode.TRANSACTION_COORDINATOR_FENCED for error in errors.values()):
            self._fenced = True
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return self._end_attempt(sent, {p for p in sent.partitions if errors.get(p, missing) not in _WRITTEN}, now_ms)

    def lost(self, sent: Markers, now_ms: int) -> None:
        """Nobody knows whether the leader has got them."""
        self._end_attempt(sent, set(sent.partitions), now_ms)

    def _attempt_at(self, ending: _Ending, partitions: tuple[TopicPartition, ...]) -> Markers:
        self._attempt += 1
        ending.attempts[self._attempt] = partitions
        transaction = ending.transaction
        return Markers(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.status is Status.PREPARE_COMMIT,
            self._coordinator_epoch,
            transaction.client_version,
            partitions,
            self._attempt,
        )

    def _end_attempt(self, sent: Markers, again: set[TopicPartition], now_ms: int) -> Transaction | None:
        ending = self._endings.get(sent.transactional_id)
        if ending is None or ending.attempts.pop(sent.attempt, None) is None:
            return None
        if again:
            ending.waiting |= again
            ending.not_before_ms = now_ms + RETRY_BACKOFF_MS
            self._next_ms = min(self._next_ms, ending.not_before_ms) if self._due else ending.not_before_ms
            self._due[sent.transactional_id] = None
        return ending.transaction if ending.complete else None
