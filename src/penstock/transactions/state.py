"""A transactional id: its producer and the state of its transaction.

A `Transaction` is the content of one record of `__transaction_state`: an immutable value. Every step makes the next
value, and `TRANSITIONS` lists all steps.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ─┐
      ▲          │                                          ├──► Empty, Ongoing, or forgotten (Dead)
      │          └──────► PrepareAbort ───► CompleteAbort ──┘
      └──── InitProducerId

Laws:

- The transaction is decided once, when its Prepare record is committed: from then on it can only complete.
- The pair (producer id, epoch) only grows: the epoch within a producer id, and a replaced id never comes back.
- Clients never hold the epoch 32767. It is reserved for the coordinator, which can so end the transaction of a producer
  at epoch 32766; the next producer id takes over from there.

**Who may act.** `identity` is the pair that the client must send. Usually it is the pair of the records in the
partitions. It differs in two cases. If an ending has used up the epochs, the client learns its next id before the
markers of the old one are written. If a producer came back and kept its prepared transaction (KIP-939), the transaction
continues under the pair it was begun with, while the client acts under the next one, so that the holder of the old pair
is fenced.

PrepareEpochFence and Dead are never in a record: fencing and aborting are one step here, and an expired id is removed
by a tombstone. They have numbers and names, because Kafka's tools may ask for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 0x7FFF
NO_TIME: Final = -1
# A transaction without a time-out is part of a two-phase commit of another system (KIP-939).
NO_TIMEOUT_MS: Final = 0x7FFF_FFFF
# The transaction version from which on every ending raises the epoch (KIP-890).
EPOCH_BUMP_VERSION: Final = 2


class Status(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name, as its tools print it: `PrepareCommit`."""
        return _LABELS[self]

    @classmethod
    def by_label(cls, label: str) -> Status | None:
        return _BY_LABEL.get(label)


_LABELS: Final = {status: status.name.title().replace("_", "") for status in Status}
_BY_LABEL: Final = {label: status for status, label in _LABELS.items()}

_AT_REST: Final = frozenset({Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT, Status.DEAD})

TRANSITIONS: Final[dict[Status, frozenset[Status]]] = {
    Status.EMPTY: _AT_REST,
    Status.ONGOING: frozenset(
        {Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT, Status.PREPARE_EPOCH_FENCE}
    ),
    Status.PREPARE_EPOCH_FENCE: frozenset({Status.PREPARE_ABORT}),
    Status.PREPARE_COMMIT: frozenset({Status.COMPLETE_COMMIT}),
    Status.PREPARE_ABORT: frozenset({Status.COMPLETE_ABORT}),
    Status.COMPLETE_COMMIT: _AT_REST,
    Status.COMPLETE_ABORT: _AT_REST,
    Status.DEAD: frozenset(),
}


class ProducerIds:
    """The source of new producer ids: a function that returns None while the broker waits for its next block."""

    __slots__ = ("_next",)

    def __init__(self, next_producer_id: Callable[[], int | None]) -> None:
        self._next = next_producer_id

    def take(self) -> int:
        producer_id = self._next()
        if producer_id is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id at hand yet")
        return producer_id


class Identity(NamedTuple):
    """The producer id and epoch that a producer sends."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH

    @property
    def exhausted(self) -> bool:
        """Whether no further epoch may be given to a client."""
        return self.epoch >= MAX_EPOCH - 1

    def bumped(self, ids: ProducerIds) -> Identity:
        return Identity(ids.take(), 0) if self.exhausted else Identity(self.producer_id, self.epoch + 1)


NOBODY: Final = Identity()


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    """The producer id of the records in the partitions, and of the markers."""
    producer_epoch: int
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last step: it identifies the retry of an ending that replaced the producer id."""
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    client_version: int = 0
    """The transaction version of the client in the last step that required one."""

    @property
    def identity(self) -> Identity:
        if self.next_producer_id == NO_PRODUCER_ID:
            return Identity(self.producer_id, self.producer_epoch)
        return Identity(self.next_producer_id, max(0, self.next_producer_epoch))

    @property
    def kept(self) -> bool:
        """Whether this is a prepared transaction whose producer has been replaced."""
        return self.status is Status.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def prepared(self) -> bool:
        return self.status is Status.PREPARE_COMMIT or self.status is Status.PREPARE_ABORT

    @property
    def two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def overdue_ms(self) -> int | None:
        """When the coordinator aborts the transaction if it has not ended before."""
        if self.status is not Status.ONGOING or self.two_phase:
            return None
        return self.started_ms + self.timeout_ms + 1

    # -- steps

    def initialized(self, identity: Identity, timeout_ms: int, now_ms: int) -> Transaction:
        """Start a producer under `identity`; nothing of an earlier transaction is left."""
        return self._to(
            Status.EMPTY,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIME,
        )

    def joined_by(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        return self._to(
            Status.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if self.status is Status.ONGOING else now_ms,
            client_version=client_version,
        )

    def kept_for(self, identity: Identity, timeout_ms: int, now_ms: int) -> Transaction:
        """Keep the transaction of a producer that came back, under the pair it was begun with.

        A prepared transaction is never lost to a time-out that is shorter than the one it was prepared under.
        """
        return self._to(
            Status.ONGOING,
            now_ms,
            timeout_ms=max(self.timeout_ms, timeout_ms),
            next_producer_id=identity.producer_id,
            next_producer_epoch=identity.epoch,
        )

    def ended(
        self, *, commit: bool, client_version: int, ids: ProducerIds, now_ms: int, fence: bool = False
    ) -> Transaction:
        """Decide the transaction.

        From transaction version 2 on, and if the producer is fenced, the markers raise the epoch.

        So the next epoch in a partition is above that of every record of this transaction, and its late records are
        refused. A pair that the client got meanwhile is raised as well: a delayed request to end this transaction must
        not end the next one.
        """
        bumps = client_version >= EPOCH_BUMP_VERSION
        next_id, next_epoch = self.next_producer_id, self.next_producer_epoch
        if bumps or fence:
            if self.kept:
                next_id, next_epoch = self.identity.bumped(ids)
            elif bumps and self.identity.exhausted:
                next_id = ids.take()
        return self._to(
            Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT,
            now_ms,
            producer_epoch=min(self.producer_epoch + (bumps or fence), MAX_EPOCH),
            started_ms=self.started_ms if self.status is Status.ONGOING else now_ms,
            previous_producer_id=self.identity.producer_id,
            next_producer_id=next_id,
            next_producer_epoch=next_epoch,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Complete the transaction: every partition has its marker."""
        commit = self.status is Status.PREPARE_COMMIT
        return self._to(
            Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT,
            now_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            partitions=frozenset(),
            previous_producer_id=self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
        )

    def _to(
        self,
        status: Status,
        now_ms: int,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: frozenset[TopicPartition] | None = None,
        started_ms: int | None = None,
        previous_producer_id: int | None = None,
        next_producer_id: int | None = None,
        next_producer_epoch: int | None = None,
        client_version: int | None = None,
    ) -> Transaction:
        if status not in TRANSITIONS[self.status]:
            raise AssertionError(f"{self.transactional_id}: {status.label} cannot follow {self.status.label}")
        return Transaction(
            self.transactional_id,
            self.producer_id if producer_id is None else producer_id,
            self.producer_epoch if producer_epoch is None else producer_epoch,
            self.timeout_ms if timeout_ms is None else timeout_ms,
            status,
            self.partitions if partitions is None else partitions,
            self.started_ms if started_ms is None else started_ms,
            max(now_ms, self.updated_ms),
            self.producer_id if previous_producer_id is None else previous_producer_id,
            self.next_producer_id if next_producer_id is None else next_producer_id,
            self.next_producer_epoch if next_producer_epoch is None else next_producer_epoch,
            self.client_version if client_version is None else client_version,
        )
