"""One partition on this broker: its log and its state as leader or follower.

A replica is the end of the produce path and the start of the fetch path. When the high watermark moves, waiting
producers are answered and waiting fetches are woken (`wakeups`).

A replica is always either leader or follower; it is a follower even if there is no leader.

`flush.messages=1` is the only flush setting that delays acknowledgements. The leader then counts its own progress by
what it has flushed, so that readers and followers see a record only when it is on disk. With `flush.messages=N` or
`flush.ms`, flushes happen in the background: an acknowledgement that waits for N-1 further messages would never come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.broker.partitions.tail import Tail, Tails
from penstock.broker.partitions.wakeups import WaitingFetch, Wakeups, Watcher
from penstock.io.clock import Clock
from penstock.io.files import Buffer
from penstock.log.log import Appended, Log, Slice
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.model.ownership import owned_by_loop
from penstock.records.batch import LENGTH_OVERHEAD, BatchHeader, read_header
from penstock.replication.follower import FollowerState
from penstock.replication.partition import LeaderState, Proposal, Registered
from penstock.replication.verification import Verification
from penstock.security.authorizer import topic_resource

if TYPE_CHECKING:
    from penstock.broker.partitions.flusher import Flusher

logger = logging.getLogger("penstock.replica")

NO_EPOCH = -1
UNKNOWN_BYTES = 1 << 30  # the number of new visible bytes is not counted: waiting fetches check again


@dataclass(slots=True, eq=False)
class ReplicationCounts:
    """Counters shared by all replicas of a broker."""

    bytes_in: int = field(default=0, init=False)
    bytes_out: int = field(default=0, init=False)
    isr_expands: int = field(default=0, init=False)
    isr_shrinks: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaContext:
    """The dependencies shared by all replicas of a broker."""

    broker_id: int
    clock: Clock
    elapsed_ms: Callable[[], int]
    """Monotonic time, independent of changes to the clock; used to judge followers."""
    wakeups: Wakeups
    flusher: Flusher
    lag_max_ms: int
    registered: Registered
    propose: Callable[[Replica, Proposal], None]
    """Propose an ISR change to the controller."""
    start_moved: Callable[[Replica], None]
    """Tell the leader where the log of a follower begins now."""
    repair: Callable[[Replica], None]
    """Report damaged batches; may be called on any thread."""
    rewritten: Callable[[], None]
    """Committed records were cut off or changed in place: what consumers have not received yet may no longer be
    right."""
    counts: ReplicationCounts = field(default_factory=ReplicationCounts)
    tails: Tails = field(default_factory=Tails)


@owned_by_loop()
class Replica:
    __slots__ = (
        "_context",
        "_elapsed_ms",
        "_flush_after",
        "_flusher",
        "_isr",
        "_led_from",
        "_led_messages",
        "_wakeups",
        "appends_plainly",
        "bytes_in",
        "bytes_out",
        "follower",
        "is_offline",
        "last_flush",
        "leader",
        "log",
        "messages_out",
        "partition",
        "resource",
        "tail",
        "topic_id",
        "topic_partition",
        "waiting_deletes",
        "waiting_fetches",
        "watchers",
    )  # fmt: skip

    def __init__(
        self,
        log: Log,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        context: ReplicaContext,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark`: the value at the last stop."""
        self.log = log
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.resource = topic_resource(topic_partition.topic)
        self.partition: Partition | None = None  # from the metadata
        self.leader: LeaderState | None = None
        known = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.follower = FollowerState(leader_id=NO_LEADER, leader_epoch=NO_EPOCH, high_watermark=known)
        self.appends_plainly = False  # this replica leads, and appends produced batches unchanged
        self.is_offline = False
        self.last_flush = 0.0  # in the loop's time; used if flush.ms is set
        self.waiting_fetches: dict[WaitingFetch, None] = {}
        self.waiting_deletes: list[tuple[int, Callable[[], None]]] = []
        self.watchers: dict[Watcher, None] = {}
        self.tail = Tail(context.tails)  # of a leader with followers
        # Since the start of this process: what this replica appended as leader, and what it sent to consumers.
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_out = 0
        self._led_messages = 0
        self._led_from = 0
        self._isr: frozenset[int] = frozenset()
        self._context = context
        self._elapsed_ms = context.elapsed_ms
        self._wakeups = context.wakeups
        self._flusher = context.flusher
        self._flush_after = log.settings.flush_messages - 1
        log.on_corruption = lambda: context.repair(self)
        if any(segment.is_suspect for segment in log.segments):
            context.repair(self)

    # -- leading and following --------------------------------------------------------------------------------------

    def lead(self, partition: Partition) -> None:
        """The metadata says that this replica leads, or still leads while something else has changed."""
        self.partition = partition
        leader = self.leader
        now_ms = self._elapsed_ms()
        if leader is not None and leader.leader_epoch == partition.leader_epoch:
            moved = leader.update(
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                now_ms=now_ms,
            )
            self.in_sync_changed(moved)
        else:
            self._begin_to_lead(partition, now_ms)

    def _begin_to_lead(self, partition: Partition, now_ms: int) -> None:
        log = self.log
        former = self.leader
        if former is None:
            self._led_from = log.log_end_offset
        log.assign_epoch(partition.leader_epoch, log.log_end_offset)
        counts_flushed = log.settings.flush_messages == 1
        self.leader = leader = LeaderState(
            broker_id=self._context.broker_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            log_end=log.log_end_offset,
            flushed=log.recovery_point,
            counts_flushed=counts_flushed,
            high_watermark=self.high_watermark,
            min_insync_replicas=log.settings.min_insync_replicas,
            lag_max_ms=self._context.lag_max_ms,
            registered=self._context.registered,
            now_ms=now_ms,
        )
        if former is not None:
            leader.succeed(former)
        self.in_sync_changed(moved=True)
        if counts_flushed and log.recovery_point < log.log_end_offset:
            self._flusher.request(self)
        self._tell_watchers()

    def follow(self, partition: Partition) -> bool:
        """The metadata says that another broker leads, or none; returns true if the leader or epoch is new."""
        self.partition = partition
        self._isr = frozenset(partition.isr)
        follower, leader = self.follower, self.leader
        if leader is None and (follower.leader_id, follower.leader_epoch) == (
            partition.leader,
            partition.leader_epoch,
        ):
            return False
        self.follower = FollowerState(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch, high_watermark=self.high_watermark
        )
        self._stop_leading()
        return True

    def _stop_leading(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        leader, self.leader = self.leader, None
        self.tail.clear()
        self._note_plainness()
        if leader is not None:
            self.follower.high_watermark = leader.high_watermark
            self._led_messages += self.log.log_end_offset - self._led_from
            for waiter in leader.take_all():
                waiter(code)
        self._tell_deletes()
        self._tell_watchers()
        self.wake_all()

    def resign(self) -> None:
        """The broker stops: nothing more is appended, not even for requests received before."""
        self._stop_leading()

    def retire(self) -> None:
        """The topic is deleted: accept no more appends and wake waiting producers and fetches."""
        self.is_offline = True
        self._stop_leading()

    def fail(self) -> None:
        """The log directory is offline: act as if the replica were gone; waiting requests get KAFKA_STORAGE_ERROR."""
        self.is_offline = True
        self._stop_leading(ErrorCode.KAFKA_STORAGE_ERROR)

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark if self.leader is not None else self.follower.high_watermark

    @property
    def messages_in(self) -> int:
        """Messages appended as leader since the start of this process: the growth of the log during leadership."""
        return self._led_messages + (0 if self.leader is None else self.log.log_end_offset - self._led_from)

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this replica leads or follows."""
        return self.leader.leader_epoch if self.leader is not None else self.follower.leader_epoch

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def leader_of(self, current_leader_epoch: int) -> LeaderState:
        """This replica's leader state, fenced by the epoch that the client believes to be current (-1: any)."""
        leader = self.leader
        if leader is None:
            self.check_epoch(current_leader_epoch)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != leader.leader_epoch:
            self.check_epoch(current_leader_epoch)
        return leader

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence by the epoch that the client believes to be current, whether this replica leads or follows."""
        if current_leader_epoch == NO_EPOCH:
            return
        known = self.leader_epoch
        if current_leader_epoch < known:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if current_leader_epoch > known:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # -- appending --------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        transaction_version: int = 0,
        verification: Verification | None = None,
    ) -> Appended:
        """`transaction_version`: of the coordinator that writes a transaction marker.

        `verification`: the question to the coordinator that was asked for the first batch of a transaction.
        """
        leader = self.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        appended = self.log.append_as_leader(
            batch,
            header,
            leader.leader_epoch,
            now_ms,
            transaction_version=transaction_version,
            verification=verification,
        )
        if not appended.duplicate:
            size = header.length + LENGTH_OVERHEAD
            self.bytes_in += size
            if leader.appended(appended.last_offset + 1, 0 if leader.commits_at_once else self._elapsed_ms()):
                self._high_watermark_moved(size)
            if self.watchers:
                if leader.high_watermark < leader.log_end:
                    self.tail.append(appended.base_offset, appended.last_offset + 1, bytes(batch))
                for watcher in self.watchers:
                    watcher.appended(size)
            if appended.last_offset - self.log.recovery_point >= self._flush_after:
                self._flusher.request(self)
        return appended

    def append_run(self, batches: Sequence[tuple[memoryview, BatchHeader]], now_ms: int) -> int | None:
        """Append several batches without producer ids at once; returns the offset of the first.

        None means that the caller must append them one by one.
        """
        leader = self.leader
        if leader is None:
            return None
        log = self.log
        before = log.active_segment.size
        first = log.append_run(batches, leader.leader_epoch, now_ms)
        if first is not None:
            size = log.active_segment.size - before
            self.bytes_in += size
            if leader.appended(log.log_end_offset, self._elapsed_ms()):
                self._high_watermark_moved(size)
            if self.watchers:
                if leader.high_watermark < leader.log_end:
                    self.tail.append(first, log.log_end_offset, b"".join([batch for batch, _ in batches]))
                for watcher in self.watchers:
                    watcher.appended(size)
            if log.log_end_offset - 1 - log.recovery_point >= self._flush_after:
                self._flusher.request(self)
        return first

    def flushed(self, offset: int) -> None:
        self.log.flushed(offset)
        leader = self.leader
        if leader is not None:
            if leader.flushed_to(min(offset, self.log.recovery_point), self._elapsed_ms()):
                self._high_watermark_moved(UNKNOWN_BYTES)
            for waiter in leader.take_flushed():
                waiter(ErrorCode.NONE)

    def settings_changed(self) -> None:
        leader = self.leader
        self._flush_after = self.log.settings.flush_messages - 1
        if leader is None:
            return
        now_ms = self._elapsed_ms()
        moved = leader.set_min_insync_replicas(self.log.settings.min_insync_replicas, now_ms)
        moved |= leader.count_flushed(self.log.settings.flush_messages == 1, now_ms)
        self.in_sync_changed(moved)
        if leader.counts_flushed and leader.flushed < leader.log_end:
            self._flusher.request(self)

    def _note_plainness(self) -> None:
        settings = self.log.settings
        self.appends_plainly = (
            self.leader is not None
            and settings.message_timestamp_type == "CreateTime"  # otherwise the broker rewrites the timestamps
            and not settings.checks_schemas
        )

    # -- copying from a leader --------------------------------------------------------------------------------------

    @property
    def must_flush_first(self) -> bool:
        """Whether the log end must not be acknowledged yet: the topic requires a flush first."""
        log = self.log
        return self._flush_after == 0 and log.recovery_point < log.log_end_offset

    def append_replicated(self, records: Buffer, leader_epoch: int) -> None:
        """Append batches from the leader of this epoch; raises KafkaError if they are damaged or not contiguous."""
        log = self.log
        view = memoryview(records)
        if log.log_end_offset == log.log_start_offset:  # it is empty
            # The leader's log start may lie within its first batch, which then begins below it.
            first = read_header(view)
            if first.base_offset < log.log_end_offset <= first.last_offset:
                log.truncate_fully_and_start_at(first.base_offset)
        log.append_preassigned(view, self._context.clock.now_ms(), max_leader_epoch=leader_epoch)
        self._context.counts.bytes_in += len(view)
        if 0 < self._flush_after <= log.log_end_offset - 1 - log.recovery_point:
            self._flusher.request(self)  # with 0 the log is flushed before the next fetch anyway

    def learned(self, high_watermark: int, log_start: int) -> None:
        """Take over the leader's high watermark and log start offset."""
        log = self.log
        if self.follower.learned(high_watermark, log.log_end_offset):
            self._high_watermark_moved(UNKNOWN_BYTES)
        if log_start > log.log_start_offset:
            log.advance_log_start(min(log_start, log.log_end_offset))
            self.wake_all()

    def truncate_to_epoch(self, epoch: int, end_offset: int, leader_start: int) -> None:
        """Truncate where this log diverges: in the leader's log, `epoch` ends at `end_offset`.

        The leader forgets where epochs ended below its log start. If nothing above it is left, this log starts over
        there: records below may differ from those that the leader had, and nobody could tell.
        """
        log = self.log
        cut = self.follower.truncation((epoch, end_offset), log.epochs, log.log_end_offset)
        logger.info(
            "%s: cut from %d to %d, the leader's epoch %d ends at %d",
            self.topic_partition,
            log.log_end_offset,
            cut.offset,
            epoch,
            end_offset,
        )
        if cut.offset <= leader_start and log.log_start_offset < leader_start:
            self._start_over(leader_start)
        else:
            self._cut(cut.offset)

    def move_into(self, leader_start: int, leader_end: int) -> None:
        """Move this log into the range of the leader's log, which has no record at this log's end.

        Truncate to the leader's log end, or start over at its log start. If this log may lack its beginning and the
        leader's log starts earlier, it does lack it, and starts over too.
        """
        log = self.log
        lacks_beginning = log.may_lack_beginning and leader_start < log.log_start_offset
        log.may_lack_beginning = False
        if lacks_beginning:
            logger.error(
                "%s: the leader begins at %d, before %d, where this log begins after a crash: starting over",
                self.topic_partition,
                leader_start,
                log.log_start_offset,
            )
            self._start_over(leader_start)
        elif leader_end < log.log_end_offset:
            logger.warning(
                "%s: cut from %d to %d, the leader has no more", self.topic_partition, log.log_end_offset, leader_end
            )
            self._cut(leader_end)
        elif leader_start > log.log_end_offset:
            logger.warning(
                "%s: the leader begins at %d, beyond %d: starting over there",
                self.topic_partition,
                leader_start,
                log.log_end_offset,
            )
            self._start_over(leader_start)

    def _start_over(self, offset: int) -> None:
        try:
            self.log.truncate_fully_and_start_at(offset)
        finally:  # the log may start there even if its files could not be removed yet
            if self.log.log_start_offset == offset:
                self.follower.high_watermark = offset
            self.wake_all()

    def _cut(self, offset: int) -> None:
        if offset < self.follower.high_watermark:
            logger.warning(
                "%s: records from %d to %d were committed once and are given up: the leader does not have them",
                self.topic_partition,
                offset,
                self.follower.high_watermark,
            )
            self._context.rewritten()
        try:
            self.log.truncate_to(offset)
        finally:  # the log may end there even if its files could not be truncated yet
            self.follower.truncated(self.log.log_end_offset)
            self.wake_all()

    # -- followers and the controller -------------------------------------------------------------------------------

    def fetched_by(self, broker_id: int, offset: int, log_start: int, broker_epoch: int, now_ms: int) -> None:
        """A follower of this leader fetches from `offset` on. `now_ms`: of the clock that judges followers."""
        leader = self.leader
        assert leader is not None
        if leader.fetched(broker_id, offset, log_start, broker_epoch, now_ms):
            self._high_watermark_moved(UNKNOWN_BYTES)
        if self.waiting_deletes:
            self._tell_deletes()
        if broker_id not in leader.isr:
            proposal = leader.expand(broker_id)
            if proposal is not None:
                logger.info(
                    "%s: broker %d has caught up at %d, let it be in sync", self.topic_partition, broker_id, offset
                )
                self._context.propose(self, proposal)

    def check_in_sync(self) -> None:
        """Periodic check: propose an ISR without the followers that have lagged for too long."""
        leader = self.leader
        if leader is None or not leader.followers:
            return
        now_ms = self._elapsed_ms()
        if leader.tick(now_ms):
            self._high_watermark_moved(UNKNOWN_BYTES)
        proposal = leader.shrink(now_ms)
        if proposal is not None:
            logger.info(
                "%s: %s have not caught up with %d in %d ms, they are not in sync",
                self.topic_partition,
                sorted(proposal.removed),
                leader.log_end,
                self._context.lag_max_ms,
            )
            self._context.propose(self, proposal)

    def in_sync_changed(self, moved: bool) -> None:
        """The ISR or the rules for it changed; `moved` tells whether that moved the high watermark."""
        leader = self.leader
        assert leader is not None
        self._note_plainness()
        self._count_isr(leader.isr)
        for watcher in self.watchers:
            watcher.in_sync_changed(leader.isr)
        if moved:
            self._high_watermark_moved(UNKNOWN_BYTES)
        for waiter in leader.take_unsafe():
            waiter(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def _count_isr(self, isr: frozenset[int]) -> None:
        """Count every ISR change once, at the resulting leader: its own proposal, the controller's, or an election."""
        before, self._isr = self._isr, isr
        if before:
            self._context.counts.isr_shrinks += bool(before - isr)
            self._context.counts.isr_expands += bool(isr - before)

    def _high_watermark_moved(self, size: int) -> None:
        leader = self.leader
        if leader is not None:
            if self.tail.size:
                self.tail.committed(leader.high_watermark)
            if leader.waiting:
                for waiter in leader.take_satisfied():
                    waiter(ErrorCode.NONE)
        for watcher in self.watchers:
            watcher.committed()
        for waiting in self.waiting_fetches:
            if waiting.data_arrived(size):
                self._wakeups.add(waiting)

    def wait_for_delete(self, offset: int, waiter: Callable[[], None]) -> None:
        """Run `waiter` once no live replica has records below `offset`, or this replica no longer leads."""
        self.waiting_deletes.append((offset, waiter))

    def _tell_deletes(self) -> None:
        low_watermark = self.low_watermark
        due = [waiter for offset, waiter in self.waiting_deletes if offset <= low_watermark]
        self.waiting_deletes = [entry for entry in self.waiting_deletes if entry[0] > low_watermark]
        for waiter in due:
            waiter()

    @property
    def low_watermark(self) -> int:
        """The smallest offset that any replica has, or would have again after a power loss.

        Greater than any offset if this replica does not lead.
        """
        return 1 << 63 if self.leader is None else self.leader.low_watermark(self.log.durable_log_start)

    def log_start_stored(self) -> None:
        """The log start offset is on disk."""
        if self.waiting_deletes:
            self._tell_deletes()

    def log_start_moved(self) -> None:
        """Records were deleted at the start of the log: readers may have to know; followers and the leader must."""
        self._tell_watchers()
        if self.leader is None:
            self._context.start_moved(self)
        self.wake_all()

    def repaired(self) -> None:
        """Records that could not be read may be readable now."""
        self._context.rewritten()
        self._tell_watchers()
        self.wake_all()

    def _tell_watchers(self) -> None:
        for watcher in self.watchers:
            watcher.changed()

    def wake_all(self) -> None:
        """Something other than data changed (log start, deletion): all waiting fetches check again."""
        for waiting in self.waiting_fetches:
            self._wakeups.add(waiting)

    # -- reading ----------------------------------------------------------------------------------------------------

    def sent(self, size: int, messages: int) -> None:
        """Count what was sent to a consumer. Messages are counted by offsets, including those removed by compaction."""
        self.bytes_out += size
        if messages > 0:
            self.messages_out += messages

    def read_cached(
        self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool, takes_ranges: bool
    ) -> Slice | None:
        """Read what a consumer may see; None if that would wait for the disk."""
        limit = self.last_stable_offset if committed else self.high_watermark
        return self.log.read_cached(offset, max_bytes, limit, at_least_one=at_least_one, takes_ranges=takes_ranges)
