"""The coordinator of the transactions in one partition of `__transaction_state`.

Durable state comes only from `replay`: a `Transaction` for each transactional id. Handlers read it and return a
`Decision` (see `coordinator/decision.py` for its laws); nothing else changes it. Records are replayed when they are
appended, and answers wait until the records are committed. So there is no pending state as in Kafka: the next request
is decided on the result of the previous one, and its answer cannot overtake. Nothing leaves before the high watermark
has passed it, neither answers nor markers.

Beside it there is soft state, which a new coordinator starts without: the outbox of markers, the time-outs (made from
the transactions by `loaded`), and the epochs that the current ones replaced (see `initializing`).

**The runtime's part.** `position` counts the records replayed. When the records of a Decision, or those that were
loaded, are committed, the runtime calls `committed` with the position at that time. That releases markers.
`markers_due` returns them; `markers_answered` and `markers_lost` take the result; completed transactions come back as a
Decision like any other. `tick` is due at `deadline`, `markers_due` at `markers_deadline` (0: now).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.coordinator.decision import Caller, CoordinatorRecord, Decision, Reply, Token
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.model.ownership import owned_by_loop
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.protocol.declaration import Message
from penstock.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from penstock.settings.transactions import TransactionSettings
from penstock.transactions.ending import end
from penstock.transactions.initializing import check_request, fence, initialize, last_epoch_of_fenced
from penstock.transactions.joining import join, verify
from penstock.transactions.listing import describe, list_transactions
from penstock.transactions.markers import LeaderOf, MarkerOutbox, Markers
from penstock.transactions.records import record_of, tombstone, transaction_of
from penstock.transactions.routing import topic_results, transactions_of
from penstock.transactions.state import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    NOBODY,
    Identity,
    ProducerIds,
    Status,
    Transaction,
)
from penstock.transactions.timeouts import Timeouts

# The number of transactions that one tick aborts, and of ids that it expires. If there are more, the next tick is due
# at once.
MAX_ABORTS_PER_TICK: Final = 100
MAX_EXPIRED_PER_TICK: Final = 1000

_MAY_EXPIRE: Final = (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)
# The request versions from which on clients know PRODUCER_FENCED, and from which on they use transaction version 2.
_FENCED_SINCE_INIT: Final = 4
_FENCED_SINCE: Final = 2
_ADD_PARTITIONS_OF_BROKERS: Final = 4
_END_WITH_EPOCH_BUMP: Final = 5


class MarkersDue(NamedTuple):
    by_broker: dict[int, list[Markers]]
    decision: Decision
    """For transactions that have no partition left to notify."""


@owned_by_loop()
class TransactionShard:
    """See the module.

    `transaction_version` returns the level finalized in the cluster, `offsets_partition` the partition of
    `__consumer_offsets` that holds a group. `coordinator_epoch` is the leader epoch of the partition.
    """

    def __init__(
        self,
        *,
        coordinator_epoch: int,
        settings: TransactionSettings,
        transaction_version: Callable[[], int],
        next_producer_id: Callable[[], int | None],
        offsets_partition: Callable[[str], int],
    ) -> None:
        self.settings = settings
        self.position = 0
        self._transaction_version = transaction_version
        self._ids = ProducerIds(next_producer_id)
        self._offsets_partition = offsets_partition
        self._transactions: dict[str, Transaction] = {}
        self._last_epochs: dict[str, int] = {}
        self.outbox = MarkerOutbox(coordinator_epoch)
        self._loaded = False
        self._timeouts = Timeouts(self._transactions)
        self._next_abort_ms = 0
        self._next_expiry_ms = 0

    def __len__(self) -> int:
        return len(self._transactions)

    def get(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    @property
    def transactions(self) -> Iterable[Transaction]:
        return self._transactions.values()

    # -- replay

    def replay(self, key: Message, value: Message | None) -> None:
        """Replay a record. Only this method changes durable state."""
        if not isinstance(key, TransactionLogKey):
            raise TypeError(f"{type(key).__name__} is no record of __transaction_state")
        self.position += 1
        transactional_id = key.transactional_id
        if value is None:
            self._transactions.pop(transactional_id, None)
            self._last_epochs.pop(transactional_id, None)
            return
        if not isinstance(value, TransactionLogValue):
            raise TypeError(f"{type(value).__name__} is no record of __transaction_state")
        before = self._transactions.get(transactional_id)
        transaction = self._transactions[transactional_id] = transaction_of(key, value)
        if self._loaded:
            self._follow(transaction, before)

    def loaded(self, now_ms: int) -> Decision:
        """Start after everything is replayed: time-outs run from now on, and decided transactions are completed."""
        self._loaded = True
        self._next_abort_ms = now_ms
        self._next_expiry_ms = now_ms + self.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        for transaction in self._transactions.values():
            self._follow(transaction, None)
        return Decision([], [])

    def resigned(self) -> list[Reply]:
        """Return no replies: every request is answered by the Decision it leads to, so no request waits here."""
        return []

    def _follow(self, transaction: Transaction, before: Transaction | None) -> None:
        """Update the outbox and the time-outs for the transaction."""
        if transaction.prepared:
            self.outbox.prepared(transaction, self.position)
        elif before is not None and before.prepared:
            self.outbox.forget(transaction.transactional_id)
        if before is None or before.overdue_ms != transaction.overdue_ms:
            self._timeouts.add(transaction)

    # -- requests

    def init_producer_id(self, request: InitProducerIdRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        version = self._transaction_version()
        transactional_id = request.transactional_id or ""
        try:
            check_request(request, self.settings, version)
            initialized = initialize(
                self._transactions.get(transactional_id),
                request,
                self._last_epochs.get(transactional_id, NO_EPOCH),
                version,
                self._ids,
                now_ms,
            )
        except KafkaError as refused:
            error = self._error(refused.code, caller.api_version < _FENCED_SINCE_INIT)
            response = InitProducerIdResponse(error_code=error, producer_epoch=NO_EPOCH)
            return Decision([], [Reply(token, response)])
        self._last_epochs[transactional_id] = initialized.last_epoch
        response = InitProducerIdResponse(
            error_code=ErrorCode.CONCURRENT_TRANSACTIONS if initialized.identity == NOBODY else ErrorCode.NONE,
            producer_id=initialized.identity.producer_id,
            producer_epoch=initialized.identity.epoch,
            ongoing_txn_producer_id=initialized.ongoing.producer_id,
            ongoing_txn_producer_epoch=initialized.ongoing.epoch,
        )
        return Decision(self._records(initialized.transaction), [Reply(token, response)])

    def add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        """Add partitions.

        All transactions of the request are this shard's (see `routing`), and their partitions exist.
        """
        changed: dict[str, Transaction] = {}
        results = [
            self._add_partitions(asked, caller.api_version, changed, now_ms)
            for asked in transactions_of(request, caller.api_version)
        ]
        response = AddPartitionsToTxnResponse()
        if caller.api_version < _ADD_PARTITIONS_OF_BROKERS:
            response.results_by_topic_v3_and_below = results[0].topic_results
        else:
            response.results_by_transaction = results
        return Decision(self._records(*changed.values()), [Reply(token, response)])

    def _add_partitions(
        self, asked: AddPartitionsToTxnTransaction, api_version: int, changed: dict[str, Transaction], now_ms: int
    ) -> AddPartitionsToTxnResult:
        transactional_id = asked.transactional_id
        current = changed.get(transactional_id) or self._transactions.get(transactional_id)
        shown = Identity(asked.producer_id, asked.producer_epoch)
        partitions = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
        errors: dict[TopicPartition, ErrorCode] = {}
        if not transactional_id:
            errors = dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        elif asked.verify_only:
            errors = {partition: verify(current, shown, partition) for partition in partitions}
        else:
            try:
                client_version = EPOCH_BUMP_VERSION if api_version >= _ADD_PARTITIONS_OF_BROKERS else 0
                joined = join(current, shown, partitions, client_version, now_ms)
                if joined is not None:
                    changed[transactional_id] = joined
            except KafkaError as refused:
                errors = dict.fromkeys(partitions, self._error(refused.code, api_version < _FENCED_SINCE))
        return AddPartitionsToTxnResult(
            transactional_id=transactional_id,
            topic_results=topic_results(
                asked.topics, lambda name, index: errors.get(TopicPartition(name, index), ErrorCode.NONE)
            ),
        )

    def add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        """Add the partition that holds the group's offsets to the transaction, like any other partition."""
        records: list[CoordinatorRecord] = []
        error = ErrorCode.NONE
        if not request.transactional_id:
            error = ErrorCode.INVALID_REQUEST
        else:
            try:
                joined = join(
                    self._transactions.get(request.transactional_id),
                    Identity(request.producer_id, request.producer_epoch),
                    [TopicPartition(CONSUMER_OFFSETS, self._offsets_partition(request.group_id))],
                    0,
                    now_ms,
                )
                if joined is not None:
                    records = self._records(joined)
            except KafkaError as refused:
                error = self._error(refused.code, caller.api_version < _FENCED_SINCE)
        return Decision(records, [Reply(token, AddOffsetsToTxnResponse(error_code=error))])

    def end_txn(self, request: EndTxnRequest, token: Token, caller: Caller, now_ms: int) -> Decision:
        transactional_id = request.transactional_id
        shown = Identity(request.producer_id, request.producer_epoch)
        try:
            if not transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
            ended = end(
                self._transactions.get(transactional_id),
                shown,
                commit=request.committed,
                client_version=EPOCH_BUMP_VERSION if caller.api_version >= _END_WITH_EPOCH_BUMP else 0,
                ids=self._ids,
                now_ms=now_ms,
            )
        except KafkaError as refused:
            error = self._error(refused.code, caller.api_version < _FENCED_SINCE)
            return Decision([], [Reply(token, EndTxnResponse(error_code=error))])
        if ended.steps and ended.identity != NOBODY:
            self._last_epochs[transactional_id] = shown.epoch
        response = EndTxnResponse(producer_id=ended.identity.producer_id, producer_epoch=ended.identity.epoch)
        return Decision(self._records(*ended.steps), [Reply(token, response)])

    def describe_transactions(
        self, request: DescribeTransactionsRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        states = [describe(name, self._transactions.get(name)) for name in request.transactional_ids]
        return Decision([], [Reply(token, DescribeTransactionsResponse(transaction_states=states))])

    def list_transactions(
        self, request: ListTransactionsRequest, token: Token, caller: Caller, now_ms: int
    ) -> Decision:
        response = list_transactions(self._transactions.values(), request, now_ms)
        return Decision([], [Reply(token, response)])

    @staticmethod
    def _error(code: ErrorCode, old_client: bool) -> ErrorCode:
        """Return the error code for the client: those older than PRODUCER_FENCED get INVALID_PRODUCER_EPOCH."""
        return ErrorCode.INVALID_PRODUCER_EPOCH if old_client and code is ErrorCode.PRODUCER_FENCED else code

    # -- markers

    @property
    def markers_deadline(self) -> int | None:
        return self.outbox.deadline

    @property
    def fenced(self) -> bool:
        """Whether a partition has refused markers because there is a newer coordinator; no more are sent."""
        return self.outbox.fenced

    def committed(self, position: int) -> None:
        self.outbox.committed(position)

    def markers_due(self, leader_of: LeaderOf, now_ms: int) -> MarkersDue:
        """Return the markers to send, each once, and the records to write because partitions have been deleted."""
        by_broker, complete = self.outbox.take(leader_of, now_ms)
        return MarkersDue(by_broker, self._complete(complete, now_ms))

    def markers_answered(self, sent: Markers, errors: Mapping[TopicPartition, int], now_ms: int) -> Decision:
        """Handle a broker's answer to `sent`. A partition without an error code in `errors` gets its marker again."""
        complete = self.outbox.answered(sent, errors, now_ms)
        return self._complete([] if complete is None else [complete], now_ms)

    def markers_lost(self, sent: Markers, now_ms: int) -> None:
        """Handle a broken connection, or an answer that did not come in time."""
        self.outbox.lost(sent, now_ms)

    def _complete(self, transactions: Iterable[Transaction], now_ms: int) -> Decision:
        return Decision(self._records(*(transaction.completed(now_ms) for transaction in transactions)), [])

    # -- time

    @property
    def deadline(self) -> int | None:
        if not self._transactions:
            return None
        overdue_ms = self._timeouts.next_ms
        if overdue_ms is None:
            return self._next_expiry_ms
        return min(self._next_expiry_ms, max(overdue_ms, self._next_abort_ms))

    def tick(self, now_ms: int) -> Decision:
        records = self._abort_overdue(now_ms) if now_ms >= self._next_abort_ms else []
        if now_ms >= self._next_expiry_ms:
            records += self._expire(now_ms)
        return Decision(records, [])

    def _abort_overdue(self, now_ms: int) -> list[CoordinatorRecord]:
        """Abort transactions past their time-out and fence their producers, which must not continue unaware."""
        version = self._transaction_version()
        overdue = self._timeouts.take(now_ms, MAX_ABORTS_PER_TICK)
        if len(overdue) < MAX_ABORTS_PER_TICK:
            interval_ms = self.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
            self._next_abort_ms = now_ms + interval_ms
        aborted = []
        for transaction in overdue:
            try:
                aborted.append(fence(transaction, version, self._ids, now_ms))
            except KafkaError:
                # Its epochs are used up, and no producer id is available: try again in the next round.
                self._timeouts.add(transaction)
                continue
            self._last_epochs[transaction.transactional_id] = last_epoch_of_fenced(transaction, version)
        return self._records(*aborted)

    def _expire(self, now_ms: int) -> list[CoordinatorRecord]:
        """Remove transactional ids that have not been used for long and have no open transaction."""
        used_before_ms = now_ms - self.settings.transactional_id_expiration_ms
        records: list[CoordinatorRecord] = []
        for transaction in self._transactions.values():
            if transaction.status in _MAY_EXPIRE and transaction.updated_ms <= used_before_ms:
                if len(records) == MAX_EXPIRED_PER_TICK:
                    return records
                records.append(tombstone(transaction.transactional_id))
        self._next_expiry_ms = now_ms + self.settings.transaction_remove_expired_transaction_cleanup_interval_ms
        return records

    def _records(self, *transactions: Transaction) -> list[CoordinatorRecord]:
        if not transactions:
            return []
        version = self._transaction_version()
        return [record_of(transaction, version) for transaction in transactions]
