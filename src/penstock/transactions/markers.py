"""The outbox of markers: every partition of a decided transaction gets its marker, with retries until it has it.

Laws:

- A marker is sent only when the record that decides is committed, also after loading: a new coordinator may find a
  decision in its log that is not committed yet. A coordinator that lost such a record would decide anew, and the
  partitions would get different outcomes.
- A marker is sent again until the partition's leader confirms that it is replicated. Leaders recognise repetitions.
- A transaction completes when all partitions have their marker. A deleted partition needs no marker; nor does one that
  refuses it because the producer is past that epoch.
- Markers carry the coordinator epoch, the leader epoch of the coordinator's partition: leaders refuse markers with an
  older epoch than they have seen.

All of this is soft state. A coordinator that has loaded its partition starts again with every prepared transaction.

The runtime takes the markers that are due, sends them, and reports the result (`answered`, `lost`), once for each value
it took.
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

# Returns the leader of a partition; NO_LEADER if there is none now, None if the partition does not exist.
LeaderOf: TypeAlias = Callable[[TopicPartition], int | None]
NO_LEADER: Final = -1
# How long to wait before a marker is sent again.
RETRY_BACKOFF_MS: Final = 50

_WRITTEN: Final = frozenset(
    {
        ErrorCode.NONE,
        # A log of such an old format cannot contain transactional records.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        # The producer is past that epoch in this partition: nothing of the transaction is open there. Kafka would stop
        # sending markers to the other partitions too, and leave the transaction prepared until the coordinator moves.
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
    """Distinguishes an answer from the late answer to an earlier attempt."""

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
    """Make one request to a broker, with markers of any number of coordinators."""
    return WriteTxnMarkersRequest(markers=[markers.message() for markers in sent])


def errors_of(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, int]]:
    """Return a broker's error codes by producer id: no two transactions of a request have the same."""
    errors: dict[int, dict[TopicPartition, int]] = {}
    for marker in response.markers:
        of_producer = errors.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                of_producer[TopicPartition(topic.name, partition.partition_index)] = partition.error_code
    return errors


class _Ending:
    """A decided transaction, with the partitions that do not have its marker yet."""

    __slots__ = ("attempts", "not_before_ms", "position", "transaction", "waiting")

    def __init__(self, transaction: Transaction, position: int) -> None:
        self.transaction = transaction
        self.position = position
        self.waiting = set(transaction.partitions)
        # Partitions whose marker has been sent, by attempt.
        self.attempts: dict[int, tuple[TopicPartition, ...]] = {}
        self.not_before_ms = 0

    @property
    def complete(self) -> bool:
        return not self.waiting and not self.attempts


class MarkerOutbox:
    __slots__ = ("_attempt", "_coordinator_epoch", "_due", "_fenced", "_next_ms", "_undecided", "endings")

    def __init__(self, coordinator_epoch: int) -> None:
        self._coordinator_epoch = coordinator_epoch
        self.endings: dict[str, _Ending] = {}
        # Transactions whose Prepare record is not committed yet, in the order of their records.
        self._undecided: list[_Ending] = []
        # Transactions with partitions that wait for a marker; dicts keep the order of arrival.
        self._due: dict[str, None] = {}
        # The earliest time at which one of them is due.
        self._next_ms = 0
        self._attempt = 0
        self._fenced = False

    def __len__(self) -> int:
        """The number of transactions whose markers are not all written."""
        return len(self.endings)

    @property
    def fenced(self) -> bool:
        """Whether a partition has seen a newer coordinator: this one is about to learn that it has been replaced."""
        return self._fenced

    def prepared(self, transaction: Transaction, position: int) -> None:
        """Add a prepared transaction; its deciding record is the `position`-th that this shard has replayed."""
        ending = _Ending(transaction, position)
        self.endings[transaction.transactional_id] = ending
        self._undecided.append(ending)

    def forget(self, transactional_id: str) -> None:
        """Remove a transaction that is complete."""
        self.endings.pop(transactional_id, None)
        self._due.pop(transactional_id, None)

    def committed(self, position: int) -> None:
        """Everything up to that record is committed: the outcome of those transactions is final."""
        decided = 0
        for ending in self._undecided:
            if ending.position > position:
                break
            decided += 1
            transactional_id = ending.transaction.transactional_id
            if self.endings.get(transactional_id) is ending:
                self._due[transactional_id] = None
                self._next_ms = 0
        del self._undecided[:decided]

    @property
    def deadline(self) -> int | None:
        """When `take` may return something: 0 for now, None if no marker is waiting to be sent."""
        return self._next_ms if self._due and not self._fenced else None

    def take(self, leader_of: LeaderOf, now_ms: int) -> tuple[dict[int, list[Markers]], list[Transaction]]:
        """Return the markers that are due, by broker, and the transactions that have no partition left to notify."""
        by_broker: dict[int, list[Markers]] = {}
        complete = []
        for transactional_id in () if self._fenced else tuple(self._due):
            ending = self.endings[transactional_id]
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
        self._next_ms = min((self.endings[due].not_before_ms for due in self._due), default=0)
        return by_broker, complete

    def answered(self, sent: Markers, errors: Mapping[TopicPartition, int], now_ms: int) -> Transaction | None:
        """Handle a leader's error codes for each partition; return the transaction if it is complete now."""
        if any(error == ErrorCode.TRANSACTION_COORDINATOR_FENCED for error in errors.values()):
            self._fenced = True
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return self._end_attempt(sent, {p for p in sent.partitions if errors.get(p, missing) not in _WRITTEN}, now_ms)

    def lost(self, sent: Markers, now_ms: int) -> None:
        """Send the markers again: it is unknown whether the leader has received them."""
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
        ending = self.endings.get(sent.transactional_id)
        if ending is None or ending.attempts.pop(sent.attempt, None) is None:
            return None
        if again:
            ending.waiting |= again
            ending.not_before_ms = now_ms + RETRY_BACKOFF_MS
            self._next_ms = min(self._next_ms, ending.not_before_ms) if self._due else ending.not_before_ms
            self._due[sent.transactional_id] = None
        return ending.transaction if ending.complete else None
