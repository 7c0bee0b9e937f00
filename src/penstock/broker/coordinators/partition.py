"""One partition of an internal topic that this broker leads, and the coordinator shard on it.

Laws:

- A shard handles requests only after everything in the log has been replayed into it, and only until leadership is
  lost. A log that cannot be replayed has no coordinator: clients look for another one, until there is a new leader or,
  if the bytes were damaged, until they have been repaired.
- Decisions are replayed at once, so that the next request sees them. Everything decided in one turn of the event loop
  is appended as one batch. Offsets inside transactions get a batch of their own, because the batch header carries their
  producer's id and epoch. There is no pending state in between, as Kafka has it.
- A reply leaves when the high watermark has passed everything the shard had replayed when the reply was made. If that
  takes too long, the client gets COORDINATOR_NOT_AVAILABLE; the change may still be committed later.
- A broker that was paused, or cannot reach the controller, may have been replaced without knowing it, and its shard may
  be out of date. While it is not sure, a reply that must be current (`submit`) waits for a record that changes nothing:
  followers that have another leader never let it be committed.
- After a failed append the shard is ahead of the log: it is dropped and loaded again, which is always correct. Requests
  whose records were not written, and requests that wait, get a retriable error. This is rare: a request that certainly
  writes is refused beforehand while there are not enough replicas.
- A new leader epoch starts from the log, even if this broker is the leader again.
- Nothing times out while there are not enough replicas to write the consequences.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from penstock.broker.coordinators.loading import Load
from penstock.broker.coordinators.shard import NO_PRODUCER, Operation, ShardT, Waiting
from penstock.broker.partitions.replica import Replica
from penstock.coordinator.decision import CoordinatorRecord, Decision, Reply
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.builder import NewRecord, build_batch
from penstock.records.control import build_transaction_marker
from penstock.replication.partition import LeaderState
from penstock.replication.verification import Verification

if TYPE_CHECKING:
    from penstock.broker.coordinators.coordinator import Coordinator

logger = logging.getLogger("penstock.coordinator")

# The size of a record in a batch without its key and value, at most.
RECORD_OVERHEAD: Final = 32
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 30.0
TIMER_MIN_S: Final = 0.001
TIMER_MAX_S: Final = 60.0

_NOT_AVAILABLE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
_NOT_COORDINATOR = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR))
_MAY_PASS = frozenset((ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR))
_TOO_LARGE = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))


def code_for_clients(code: ErrorCode) -> ErrorCode:
    """Translate an error of the log to an error of coordinators."""
    if code in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if code in _TOO_LARGE else code


class Producer(NamedTuple):
    """The producer whose transaction a write belongs to."""

    producer_id: int
    producer_epoch: int
    verification: Verification | None = None
    """What the transaction coordinator was asked; None if the transaction was already open here."""


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int

    def build(self, now_ms: int) -> bytearray:
        """The batch that a log stores."""
        return build_transaction_marker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=self.committed,
            coordinator_epoch=self.coordinator_epoch,
            timestamp=now_ms,
        )


class _Owed(NamedTuple):
    """Replies to send when everything below `offset` is committed."""

    offset: int
    since: float
    replies: Sequence[Reply]


@owned_by_loop()
class CoordinatorPartition(Generic[ShardT]):
    def __init__(self, coordinator: Coordinator[ShardT], replica: Replica, leader: LeaderState) -> None:
        self.replica = replica
        self.leader_epoch = leader.leader_epoch
        self.index = replica.topic_partition.partition
        self._coordinator = coordinator
        self._loop = coordinator.loop
        self._clock = coordinator.clock
        self.shard: ShardT | None = None  # None while it is loading
        self.load: Load[ShardT] | None = None
        self._load_again_after = RETRY_S
        self._batch: list[NewRecord] = []
        self._batch_size = 0
        self._is_flush_due = False
        self.owed: deque[_Owed] = deque()
        self._owed_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._is_closed = False
        replica.watchers[self] = None
        self._begin_loading()

    # -- lifecycle of a shard ---------------------------------------------------------------------------------------

    def _begin_loading(self) -> None:
        shard = self._coordinator.new_shard(self.index, self.leader_epoch)
        self.load = Load(self._coordinator, self.replica, shard, self._loaded, self._load_failed)

    def _loaded(self, shard: ShardT) -> None:
        self.load = None
        self.shard = shard
        now_ms = self._clock.now_ms()
        self._carry_out(shard.loaded(now_ms), now_ms)

    def _load_failed(self, error: KafkaError) -> None:
        """Load again after a read error, which may be temporary. Malformed content would fail again."""
        logger.error("%s cannot be loaded: %s", self.replica.topic_partition, error.message)
        self.load = None
        if error.code in _MAY_PASS:
            self._loop.call_later(self._load_again_after, self._load_again)
            self._load_again_after = min(2 * self._load_again_after, RETRY_MAX_S)

    def _load_again(self) -> None:
        if not self._is_closed:
            self._begin_loading()

    def resign(self) -> None:
        """Another broker leads the partition, or this one does in a new epoch."""
        self._is_closed = True
        self.replica.watchers.pop(self, None)
        if self.load is not None:
            self.load.cancel()
        self._drop_shard()
        owed, self.owed = self.owed, deque()
        for entry in owed:
            self._refuse(entry.replies, ErrorCode.NOT_COORDINATOR)
        if self._owed_timer is not None:
            self._owed_timer.cancel()

    def _drop_shard(self) -> None:
        shard, self.shard = self.shard, None
        self._batch = []
        self._batch_size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if shard is not None:
            self._coordinator.dropped(self)
            self._send(shard.resigned())

    def _append_failed(self, error: KafkaError) -> None:
        """The shard contains changes that are not in the log: drop it and load it again."""
        logger.warning("%s: %s; loading it anew", self.replica.topic_partition, error.message)
        code = code_for_clients(error.code)
        end = self.replica.log.log_end_offset
        untrue = [entry for entry in self.owed if entry.offset > end]
        self.owed = deque(entry for entry in self.owed if entry.offset <= end)
        self._drop_shard()
        for entry in untrue:
            self._refuse(entry.replies, code)
        if not self._is_closed:
            self._begin_loading()

    # -- requests ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        operation: Operation[ShardT],
        waiting: Waiting,
        *,
        writes: bool = False,
        is_current: bool = False,
        producer: Producer | None = None,
    ) -> None:
        """`writes`: the operation changes something; refuse it if nothing can be appended. `is_current`: the reply must
        be true of the cluster, even if the operation only reads. `producer`: the owner of the transaction."""
        shard = self.shard
        if shard is None:
            waiting.refuse(self._why_none)
            return
        must_confirm = (writes or is_current) and self.may_be_replaced
        if writes or must_confirm:
            try:
                self._check_writable()
            except KafkaError as error:
                waiting.refuse(code_for_clients(error.code))
                return
        now_ms = self._clock.now_ms()
        decision = operation(shard, waiting, now_ms)
        if must_confirm and decision.replies and not decision.records:
            decision = Decision([self._coordinator.no_change], decision.replies)
            producer = None
        self._carry_out(decision, now_ms, producer)

    @property
    def may_be_replaced(self) -> bool:
        """Whether another broker may be the coordinator by now."""
        leader = self.replica.leader
        return not self._coordinator.is_sure() and (leader is None or bool(leader.followers))

    @property
    def _why_none(self) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR if self.load is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def carry_out(self, decision: Decision) -> None:
        """Carry out a decision that no request asked for: after a metadata change, for example."""
        self._carry_out(decision, self._clock.now_ms())

    def end_transaction(self, marker: Marker, waiting: Waiting) -> None:
        """Write the marker that commits or aborts what a producer wrote here in its transaction."""
        shard = self.shard
        if shard is None:
            waiting.refuse(self._why_none)
            return
        self._flush()
        if self.shard is not shard:
            waiting.refuse(ErrorCode.NOT_COORDINATOR)
            return
        now_ms = self._clock.now_ms()
        batch = marker.build(now_ms)
        try:
            self._append(batch, now_ms, marker.transaction_version)
        except KafkaError as error:
            # Nothing is decided or replayed yet: the shard matches the log.
            waiting.refuse(code_for_clients(error.code))
            return
        if self._coordinator.end_transaction is not None:
            self._coordinator.end_transaction(shard, marker.producer_id, marker.producer_epoch, marker.committed)
        self._carry_out(Decision([], [Reply(waiting, waiting.refusal(ErrorCode.NONE))]), now_ms)
        self._coordinator.wake_readers()

    def _carry_out(self, decision: Decision, now_ms: int, producer: Producer | None = None) -> None:
        if decision.records:
            if producer is not None:
                if not self._write_in_transaction(decision, now_ms, producer):
                    return
            elif not self._write(decision, now_ms):
                return
        self._owe(decision.replies)
        self._after_change()

    def _after_change(self) -> None:
        if self.shard is not None:
            self._coordinator.changed(self)
            self._set_timer()

    # -- writing ----------------------------------------------------------------------------------------------------

    def _check_writable(self) -> LeaderState:
        leader = self.replica.leader
        if leader is None or leader.leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not leader.has_enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(leader.isr)} replicas are in sync, {leader.min_isr} must be (min.insync.replicas)",
            )
        return leader

    @property
    def _size_max(self) -> int:
        settings = self.replica.log.settings
        return min(settings.max_message_bytes, settings.segment_bytes)

    def _write(self, decision: Decision, now_ms: int) -> bool:
        """Replay now, and append before the end of this turn of the event loop; False if that is not possible."""
        new = self._encode(decision.records, now_ms)
        size = _size_of(new)
        if size + HEADER_SIZE > self._size_max:
            if decision.replies or not self._write_piecemeal(decision.records, new, now_ms):
                self._too_large(decision, size)
                return False
            return True
        if self._batch_size + size + HEADER_SIZE > self._size_max:
            shard = self.shard
            self._flush()
            if self.shard is not shard:
                self._refuse(decision.replies, ErrorCode.NOT_COORDINATOR)
                return False
        self._replay(decision.records, now_ms, self.end_offset)
        self._batch += new
        self._batch_size += size
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_soon)
        return True

    def _write_piecemeal(self, records: list[CoordinatorRecord], new: list[NewRecord], now_ms: int) -> bool:
        """Write records that no request waits for (expired offsets, for example) in several batches."""
        if any(_size_of([each]) + HEADER_SIZE > self._size_max for each in new):
            return False
        for record in records:
            if self.shard is None or not self._write(Decision([record], []), now_ms):
                break
        return True

    def _too_large(self, decision: Decision, size: int) -> None:
        self.owed.append(_Owed(1 << 62, self._loop.time(), decision.replies))
        self._append_failed(
            KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes of records exceed max.message.bytes")
        )

    def _write_in_transaction(self, decision: Decision, now_ms: int, producer: Producer) -> bool:
        shard = self.shard
        self._flush()
        if self.shard is not shard:
            self._refuse(decision.replies, ErrorCode.NOT_COORDINATOR)
            return False
        batch = build_batch(
            self._encode(decision.records, now_ms),
            codec=self._coordinator.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )
        try:
            self._append(batch, now_ms, verification=producer.verification)
        except KafkaError as error:
            self._refuse(decision.replies, code_for_clients(error.code))
            return False
        first_offset = self.replica.log.log_end_offset - len(decision.records)
        self._replay(decision.records, now_ms, first_offset, producer)
        self._coordinator.wake_readers()
        return True

    def _encode(self, records: list[CoordinatorRecord], now_ms: int) -> list[NewRecord]:
        encode = self._coordinator.records.encode
        return [(now_ms, *encode(record), ()) for record in records]

    def _replay(
        self, records: list[CoordinatorRecord], now_ms: int, first_offset: int, producer: Producer | None = None
    ) -> None:
        shard = self.shard
        assert shard is not None
        replay = self._coordinator.replay
        producer_id = NO_PRODUCER if producer is None else producer.producer_id
        for offset, (key, value) in enumerate(records, first_offset):
            replay(shard, key, value, producer_id, now_ms, offset)

    def _flush_soon(self) -> None:
        self._is_flush_due = False
        self._flush()
        self._coordinator.wake_readers()

    def _flush(self) -> None:
        """Append what has been decided. If that fails, the shard has been replaced afterwards."""
        records, self._batch = self._batch, []
        self._batch_size = 0
        if not records:
            return
        try:
            self._append(build_batch(records, codec=self._coordinator.codec), self._clock.now_ms())
        except KafkaError as error:
            self._append_failed(error)

    def _append(
        self, batch: bytearray, now_ms: int, transaction_version: int = 0, verification: Verification | None = None
    ) -> None:
        self._check_writable()
        self.replica.append(
            memoryview(batch),
            read_header(batch),
            now_ms,
            transaction_version=transaction_version,
            verification=verification,
        )

    # -- replies ----------------------------------------------------------------------------------------------------

    def _owe(self, replies: Sequence[Reply]) -> None:
        if not replies:
            return
        if self.is_committed:
            self._send(replies)
            return
        self.owed.append(_Owed(self.end_offset, self._loop.time(), replies))
        if self._owed_timer is None:
            self._owed_timer = self._loop.call_later(self._coordinator.commit_timeout, self._look_for_overdue)

    @property
    def is_committed(self) -> bool:
        """Whether everything that the shard has replayed is committed: its replies are then true at once."""
        return self.end_offset <= self.replica.high_watermark

    @property
    def end_offset(self) -> int:
        """The end of the log after everything decided so far is appended."""
        return self.replica.log.log_end_offset + len(self._batch)

    def _look_for_overdue(self) -> None:
        now = self._loop.time()
        patience = self._coordinator.commit_timeout
        self._owed_timer = None
        while self.owed and self.owed[0].since + patience <= now + TIMER_MIN_S:
            self._refuse(self.owed.popleft().replies, code_for_clients(ErrorCode.REQUEST_TIMED_OUT))
        if self.owed:
            self._owed_timer = self._loop.call_at(self.owed[0].since + patience, self._look_for_overdue)

    @staticmethod
    def _send(replies: Iterable[Reply]) -> None:
        for token, response in replies:
            assert isinstance(token, Waiting)
            token.answer(response)

    @staticmethod
    def _refuse(replies: Iterable[Reply], code: ErrorCode) -> None:
        for token, _ in replies:
            assert isinstance(token, Waiting)
            token.refuse(code)

    # -- called by the replica (a Watcher) --------------------------------------------------------------------------

    def committed(self) -> None:
        high_watermark = self.replica.high_watermark
        while self.owed and self.owed[0].offset <= high_watermark:
            self._send(self.owed.popleft().replies)
        self._coordinator.committed(self)

    def appended(self, size: int) -> None:
        pass

    def changed(self) -> None:
        pass

    def in_sync_changed(self, isr: frozenset[int]) -> None:
        pass

    # -- time -------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """One timer for all deadlines of the shard; if it fires too early, it is set again. The event loop's time stops
        while the machine is suspended, so a timer that is overdue by the clock may still have hours to go."""
        assert self.shard is not None
        deadline = self.shard.deadline
        if deadline is None:
            return
        now_ms = self._clock.now_ms()
        if self._timer is not None:
            if now_ms < self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        delay = min(max(TIMER_MIN_S, (deadline - now_ms) / 1000), TIMER_MAX_S)
        self._timer = self._loop.call_later(delay, self._tick_soon)

    def _tick_soon(self) -> None:
        self._coordinator.upkeep.once(self._tick)

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        shard = self.shard
        if shard is None:
            return
        now_ms = self._clock.now_ms()
        deadline = shard.deadline
        if deadline is None or deadline > now_ms:
            self._set_timer()
            return
        try:
            self._check_writable()
        except KafkaError:
            self._timer_at = now_ms
            self._timer = self._loop.call_later(RETRY_S, self._tick_soon)
            return
        self._carry_out(shard.tick(now_ms), now_ms)


def _size_of(records: Iterable[NewRecord]) -> int:
    return sum(len(key or b"") + len(value or b"") + RECORD_OVERHEAD for _, key, value, _ in records)
