"""One partition on this broker: its log, and what its leader knows.

The end of the produce path and the start of the fetch path. When the high watermark moves, waiting producers are
answered and waiting fetches are woken; the wake-ups run after the whole read that caused them
(`Wakeups.run`), so that a burst of produce requests becomes one fetch reply, not many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.log.log import Appended, Log, Slice
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.records.batch import LENGTH_OVERHEAD, BatchHeader
from penstock.replication.partition import LeaderState
from penstock.security.authorizer import topic_resource

if TYPE_CHECKING:
    from penstock.broker.flusher import Flusher


class WaitingFetch(Protocol):
    def data_arrived(self, size: int) -> bool:
        """`size` bytes more can be read; true if that may be enough."""
        ...

    def wake(self) -> None: ...


class Wakeups:
    """Waiting fetches whose time may have come."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[WaitingFetch, None] = {}

    def add(self, waiting: WaitingFetch) -> None:
        self._due[waiting] = None

    def run(self) -> None:
        while self._due:
            due, self._due = self._due, {}
            for waiting in due:
                waiting.wake()


class Replica:
    __slots__ = (
        "_flush_after",
        "_flusher",
        "_wakeups",
        "appends_plainly",
        "is_offline",
        "last_flush",
        "leader",
        "log",
        "resource",
        "topic_id",
        "topic_partition",
        "waiting_fetches",
    )

    def __init__(
        self, log: Log, topic_partition: TopicPartition, topic_id: Uuid, wakeups: Wakeups, flusher: Flusher
    ) -> None:
        self.log = log
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.resource = topic_resource(topic_partition.topic)
        self.leader: LeaderState | None = None
        self.appends_plainly = False  # produced batches go into the log as they are, and are committed at once
        self.is_offline = False
        self.last_flush = 0.0  # by the loop's clock, where flush.ms asks for flushes by time
        self.waiting_fetches: dict[WaitingFetch, None] = {}
        self._wakeups = wakeups
        self._flush_after = log.settings.flush_messages - 1
        self._flusher = flusher

    def lead(self, leader_epoch: int) -> None:
        log = self.log
        if self.leader is not None and self.leader.leader_epoch == leader_epoch:
            return
        log.assign_epoch(leader_epoch, log.log_end_offset)
        counts_flushed = log.settings.flush_messages == 1
        self.leader = LeaderState(
            leader_epoch=leader_epoch,
            log_end=log.log_end_offset,
            flushed=log.recovery_point,
            counts_flushed=counts_flushed,
        )
        self._note_plainness()
        if counts_flushed and log.recovery_point < log.log_end_offset:
            self._flusher.request(self)

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark if self.leader is not None else self.log.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def leader_of(self, current_leader_epoch: int) -> LeaderState:
        """This replica's leadership, fenced by the epoch a client believes in (-1: any)."""
        leader = self.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != -1 and current_leader_epoch != leader.leader_epoch:
            if current_leader_epoch < leader.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return leader

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        leader = self.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        appended = self.log.append_as_leader(batch, header, leader.leader_epoch, now_ms)
        if not appended.duplicate:
            if leader.appended(appended.last_offset + 1):
                self._high_watermark_moved(header.length + LENGTH_OVERHEAD)
            if appended.last_offset - self.log.recovery_point >= self._flush_after:
                self._flusher.request(self)
        return appended

    def append_run(self, batches: Sequence[tuple[memoryview, BatchHeader]], now_ms: int) -> int | None:
        """Several batches without producer ids at once; the first one's offset. None: one by one, please."""
        leader = self.leader
        if leader is None:
            return None
        log = self.log
        before = log.active_segment.size
        first = log.append_run(batches, leader.leader_epoch, now_ms)
        if first is not None:
            if leader.appended(log.log_end_offset):
                self._high_watermark_moved(log.active_segment.size - before)
            if log.log_end_offset - 1 - log.recovery_point >= self._flush_after:
                self._flusher.request(self)
        return first

    def flushed(self, offset: int) -> None:
        self.log.flushed(offset)
        leader = self.leader
        if leader is not None:
            before = leader.high_watermark
            if leader.flushed_to(offset):
                # How many bytes that is nobody needs to know exactly: whoever waits looks again.
                self._high_watermark_moved((offset - before) << 20)

    def settings_changed(self) -> None:
        leader = self.leader
        self._flush_after = self.log.settings.flush_messages - 1
        if leader is None:
            return
        moved = leader.count_flushed(self.log.settings.flush_messages == 1)
        self._note_plainness()
        if moved:
            self._high_watermark_moved(1 << 30)
        elif leader.counts_flushed and leader.flushed < leader.log_end:
            self._flusher.request(self)

    def _note_plainness(self) -> None:
        leader = self.leader
        self.appends_plainly = (
            leader is not None
            and leader.commits_at_once
            and self.log.settings.message_timestamp_type == "CreateTime"  # else they are stamped
        )

    def _high_watermark_moved(self, size: int) -> None:
        leader = self.leader
        assert leader is not None
        if leader.waiting:
            for waiter in leader.take_satisfied():
                waiter()
        for waiting in self.waiting_fetches:
            if waiting.data_arrived(size):
                self._wakeups.add(waiting)

    def wake_all(self) -> None:
        """Something other than data changed (log start, deletion): whoever waits should look again."""
        for waiting in self.waiting_fetches:
            self._wakeups.add(waiting)

    def read(
        self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool, cached_only: bool
    ) -> Slice | None:
        limit = self.last_stable_offset if committed else self.high_watermark
        return self.log.read(offset, max_bytes, limit, at_least_one=at_least_one, cached_only=cached_only)

    def retire(self) -> None:
        """The topic is gone: no more appends; producers and fetches that wait find out."""
        leader, self.leader = self.leader, None
        self._note_plainness()
        self.is_offline = True
        if leader is not None:
            for waiter in leader.take_all():
                waiter()
        self.wake_all()
