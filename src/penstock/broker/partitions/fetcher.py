"""Copies the partitions that this broker follows from their leaders.

For each leading broker there is one fetcher, one connection, one session and one request in flight.

Laws:

- A sent fetch offset is an acknowledgement. It is never beyond what is written nor, on topics that flush every message,
  beyond what is flushed. Since only one request is in flight, no older one can overtake it.
- Every partition is fetched under the leader epoch from the metadata. An answer counts only if the partition is still
  fetched under that epoch and from that offset.
- Records that diverge from the leader's history are truncated before anything is appended (`replication/follower.py`).
  A damaged or non-contiguous batch is not appended, and neither is the rest of its partition's answer.

A request names the partitions whose position has changed since the last one; the leader's session remembers the others.
A partition with an error leaves the session and returns after a delay, which grows each time; the others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.broker.log_limiter import SparingLog
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.registration import Registration
from penstock.broker.net.peers import Peer
from penstock.broker.partitions.fetch_sessions import INITIAL_EPOCH, NO_SESSION
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.partitions.follower_sessions import FetchPosition, Found
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replication_frames import Answer, ReplicaFetch
from penstock.broker.partitions.throttle import ReplicationThrottle
from penstock.broker.partitions.wakeups import Wakeups
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import FetchRequest, ForgottenTopic, PartitionData, ReplicaState
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.settings.live import LiveSettings

logger = logging.getLogger("penstock.fetcher")

CHANNEL = "replication"
BACKOFF_MIN_S = 0.02
THROTTLE_CHECK_S = 1.0
LAST_EPOCH = 0x7FFFFFFF
LATEST = -1
EARLIEST = -2

# The leader, or this broker, has not replayed the latest metadata yet; these errors should pass soon.
_SOON_OVER = frozenset(
    (
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)

Key = tuple[bytes, int]


class Followed:
    """A partition that is fetched under one leader epoch."""

    __slots__ = ("epoch", "failures", "key", "named_offset", "replica", "timer")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.key: Key = (replica.topic_id, replica.topic_partition.partition)
        self.epoch = replica.follower.leader_epoch
        self.named_offset: int | None = None  # the offset in the session; None: not in the session
        self.failures = 0
        self.timer: asyncio.TimerHandle | None = None  # set while the partition waits to be fetched again


@dataclass(eq=False, kw_only=True)
class Fetchers:
    settings: LiveSettings
    loop: asyncio.AbstractEventLoop
    registration: Registration
    brokers: Brokers
    flusher: Flusher
    wakeups: Wakeups
    throttle: ReplicationThrottle
    # Makes the current log start offsets durable.
    store_log_starts: Callable[[], Awaitable[None]]
    _by_leader: dict[int, Fetcher] = field(default_factory=dict, init=False)
    _leaders: dict[Replica, int] = field(default_factory=dict, init=False)
    damaged_answers: int = field(default=0, init=False)  # answers with batches that were damaged or not contiguous

    def follow(self, replica: Replica) -> None:
        """Fetch from the replica's current leader, under its epoch; do not fetch if there is no leader."""
        leader_id = replica.follower.leader_id
        former = self._leaders.get(replica)
        if former is not None and former != leader_id:
            self.forget(replica)
        if leader_id < 0:
            return
        fetcher = self._by_leader.get(leader_id)
        if fetcher is None:
            fetcher = self._by_leader[leader_id] = Fetcher(self, leader_id)
        self._leaders[replica] = leader_id
        fetcher.add(replica)

    def forget(self, replica: Replica) -> None:
        leader_id = self._leaders.pop(replica, None)
        if leader_id is None:
            return
        fetcher = self._by_leader[leader_id]
        fetcher.remove(replica)
        if not fetcher.partitions:
            del self._by_leader[leader_id]
            fetcher.close()

    def start_moved(self, replica: Replica) -> None:
        """The next fetch says where the log begins now."""
        leader_id = self._leaders.get(replica)
        if leader_id is not None:
            self._by_leader[leader_id].start_moved(replica)

    def broker_changed(self, broker_id: int) -> None:
        fetcher = self._by_leader.get(broker_id)
        if fetcher is not None:
            fetcher.leader_changed()

    def close(self) -> None:
        for fetcher in self._by_leader.values():
            fetcher.close()
        self._by_leader.clear()
        self._leaders.clear()


class Fetcher:
    """Fetches all partitions that this broker follows from one leader."""

    def __init__(self, fetchers: Fetchers, leader_id: int) -> None:
        self._fetchers = fetchers
        self._settings = fetchers.settings
        self._loop = fetchers.loop
        self._registered = fetchers.registration
        self._throttle = fetchers.throttle
        self._leader_id = leader_id
        self.partitions: dict[Key, Followed] = {}
        self._changed: dict[Key, Followed] = {}  # to be named in the next request
        self._forgotten: dict[Key, None] = {}  # to be removed from the session by the next request
        self._out_of_range: dict[Key, Followed] = {}
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._is_busy = False  # a request is in flight, or a flush before the next one
        self._starts_moved: dict[Key, Followed] = {}  # named again once their log start offset is on disk
        self._is_storing_starts = False
        self._is_closed = False
        self._failures = 0
        self._peer: Peer | None = None
        self._timer: asyncio.Handle | None = None
        self._registration = self._leader_registration()
        self._failures_log = SparingLog(logger, self._loop.time)

    # -- followed partitions ----------------------------------------------------------------------------------------

    def add(self, replica: Replica) -> None:
        followed = Followed(replica)
        self._cancel(self.partitions.get(followed.key))
        self.partitions[followed.key] = followed
        self._fetch(followed)
        self.go_on_soon()

    def _fetch(self, followed: Followed) -> None:
        """Fetch with the next request.

        If the log may lack its beginning, check that first: the replica would wrongly count as in sync.
        """
        log = followed.replica.log
        due = self._out_of_range if log.may_lack_beginning else self._changed
        due[followed.key] = followed
        if log.durable_log_start < log.log_start_offset:
            self._start_moved(followed)

    def remove(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.topic_partition.partition)
        followed = self.partitions.pop(key, None)
        if followed is not None:
            self._cancel(followed)
            self._leave_session(followed)

    def start_moved(self, replica: Replica) -> None:
        followed = self.partitions[replica.topic_id, replica.topic_partition.partition]
        if followed.named_offset is None:
            return  # it is named anyway, once it is fetched
        if replica.log.durable_log_start < replica.log.log_start_offset:
            self._start_moved(followed)
        else:
            self._changed[followed.key] = followed
            self.go_on_soon()

    @staticmethod
    def _cancel(followed: Followed | None) -> None:
        if followed is not None and followed.timer is not None:
            followed.timer.cancel()
            followed.timer = None

    def _leave_session(self, followed: Followed) -> None:
        self._changed.pop(followed.key, None)
        self._out_of_range.pop(followed.key, None)
        if followed.named_offset is not None:
            followed.named_offset = None
            self._forgotten[followed.key] = None

    def _delay(self, followed: Followed, seconds: float) -> None:
        """Remove a partition from the session for some time."""
        self._leave_session(followed)
        self._cancel(followed)
        followed.timer = self._loop.call_later(seconds, self._return, followed)

    def _return(self, followed: Followed) -> None:
        followed.timer = None
        if self.partitions.get(followed.key) is followed and not self._is_held_back(followed):
            self._fetch(followed)
            self._go_on()

    def _failed(self, followed: Followed, code: ErrorCode) -> None:
        longest = self._settings.now.replica_fetch_backoff_ms / 1000
        seconds = longest
        if code in _SOON_OVER:
            seconds = min(longest, BACKOFF_MIN_S * 2 ** min(followed.failures, 10))
        followed.failures += 1
        self._delay(followed, seconds)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for followed in self.partitions.values():
            self._cancel(followed)
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    # -- requests ---------------------------------------------------------------------------------------------------

    def leader_changed(self) -> None:
        """The leader's registration changed: it may be reachable now, or at another address.

        A new registration means a new process. If the machine of the old one lost power, the connection that waits for
        an answer was never closed.
        """
        registration = self._leader_registration()
        if registration != self._registration and self._peer is not None:
            self._peer.disconnect(f"broker {self._leader_id} has started again")
        self._registration = registration
        self.go_on_soon()

    def _leader_registration(self) -> int | None:
        return self._fetchers.brokers.registration_epoch(self._leader_id)

    def go_on_soon(self) -> None:
        """Send the next request after the current events are handled: many partitions change at a time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._is_busy or self._is_closed:
            return
        peer = self._find_peer()
        if peer is None:
            return  # wait until the metadata contains its address
        if self._out_of_range:
            self._ask_for_range(peer)
            return
        unflushed = [followed.replica for followed in self._changed.values() if followed.replica.must_flush_first]
        if unflushed:
            self._flush(unflushed)
            return
        request = self._request()
        if request is None:
            return
        self._is_busy = True
        timeout = self._settings.now.replica_socket_timeout_ms / 1000
        message = request.message
        peer.send(message, lambda answer: self._answered(message, answer), timeout=timeout, form=request)

    def _find_peer(self) -> Peer | None:
        peer = self._fetchers.brokers.peer(self._leader_id, CHANNEL)
        if peer is not None and peer is not self._peer:
            if self._peer is not None:
                self._peer.close()
            self._peer = peer
            self._reset_session()
        return peer

    def _flush(self, replicas: list[Replica]) -> None:
        """Flush before the next request: an acknowledged offset must be on disk."""
        self._is_busy = True
        flushes = [self._fetchers.flusher.flush(replica) for replica in replicas]
        asyncio.gather(*flushes, return_exceptions=True).add_done_callback(self._flushed)

    def _start_moved(self, followed: Followed) -> None:
        """Make a new log start offset durable, then send it.

        The log start offset is an acknowledgement, too: for DeleteRecords. Nothing else waits for it: fetches sent
        meanwhile contain the log start offset that is on disk.
        """
        self._starts_moved[followed.key] = followed
        if not self._is_storing_starts:
            self._is_storing_starts = True
            task = self._loop.create_task(self._store_starts())
            task.add_done_callback(self._starts_stored)

    async def _store_starts(self) -> list[Followed]:
        moved, self._starts_moved = self._starts_moved, {}
        await self._fetchers.store_log_starts()
        return list(moved.values())

    def _starts_stored(self, task: asyncio.Task[list[Followed]]) -> None:
        self._is_storing_starts = False
        if self._is_closed or task.cancelled():
            return
        for followed in task.result():
            if self.partitions.get(followed.key) is followed and followed.named_offset is not None:
                self._changed[followed.key] = followed
        for followed in list(self._starts_moved.values()):
            self._start_moved(followed)
        self._go_on()

    def _flushed(self, future: asyncio.Future[Any]) -> None:
        self._is_busy = False
        if not future.cancelled():
            self._go_on()

    def _reset_session(self) -> None:
        """The next request names all partitions. It carries the session's id, so that the leader can close it."""
        self._session_epoch = INITIAL_EPOCH
        self._forgotten.clear()
        for followed in self.partitions.values():
            followed.named_offset = None
            if followed.timer is None and followed.key not in self._out_of_range:
                self._changed[followed.key] = followed

    def _request(self) -> ReplicaFetch | None:
        if not self._changed and all(each.named_offset is None for each in self.partitions.values()):
            return None  # nothing to fetch: all followed partitions wait to be retried
        settings = self._settings.now
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._registered.broker_id, replica_epoch=self._registered.broker_epoch
            ),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
        )
        asked: list[FetchPosition] = []
        max_bytes = settings.replica_fetch_max_bytes
        for key, followed in self._changed.items():
            log = followed.replica.log
            followed.named_offset = end = log.log_end_offset
            asked.append((key, followed.epoch, end, log.epochs.latest, log.durable_log_start, max_bytes))
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            if (topic_id, index) not in self._changed:
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        request.forgotten_topics_data = list(forgotten.values())
        self._changed.clear()
        self._forgotten.clear()
        return ReplicaFetch(request, asked)

    # -- answers ----------------------------------------------------------------------------------------------------

    def _answered(self, request: FetchRequest, answer: Answer | Exception) -> None:
        self._is_busy = False
        if self._is_closed:
            return
        if not isinstance(answer, Answer):
            self._lost(str(answer))
            return
        if answer.error_code:
            self._lost(ErrorCode(answer.error_code).name)
            return
        self._failures = 0
        if request.session_epoch == INITIAL_EPOCH:
            self._session_id = answer.session_id
            self._session_epoch = 1
        else:
            self._session_epoch = 1 if self._session_epoch == LAST_EPOCH else self._session_epoch + 1
        # In a session, a leader repeats nothing: neither the high watermark nor the log start offset of an answer that
        # is ignored here, or that says where the logs diverge.
        is_all_taken = self._session_id != NO_SESSION  # else it has no free slot for one
        for key, data in answer.partitions:
            followed = self.partitions.get(key)
            if followed is None:
                continue
            is_current = self._is_current(followed)
            is_all_taken &= is_current and (isinstance(data, Found) or data.diverging_epoch is None)
            if is_current:
                try:
                    if isinstance(data, Found) or self._agrees(followed, data):
                        self._take(followed, data)
                except Exception:  # a defect in this code; it must not affect the other partitions
                    logger.exception("%s: what its leader sent cannot be processed", followed.replica.topic_partition)
                    self._failed(followed, ErrorCode.UNKNOWN_SERVER_ERROR)
        if not is_all_taken:
            self._reset_session()
        self._fetchers.wakeups.run()
        self._go_on()

    @staticmethod
    def _is_current(followed: Followed) -> bool:
        """Whether an answer is for the current epoch and offset."""
        replica = followed.replica
        return (
            followed.named_offset == replica.log.log_end_offset
            and replica.leader is None
            and replica.follower.leader_epoch == followed.epoch
        )

    def _lost(self, reason: str) -> None:
        """Start a new session, after a delay that grows with repeated failures."""
        self._reset_session()
        seconds = min(self._settings.now.replica_fetch_backoff_ms / 1000, BACKOFF_MIN_S * 2 ** min(self._failures, 10))
        self._failures += 1
        logger.log(
            logging.WARNING if self._failures == 1 else logging.DEBUG,
            "broker %d cannot be fetched from: %s",
            self._leader_id,
            reason,
        )
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._go_on)

    def _agrees(self, followed: Followed, data: PartitionData) -> bool:
        """Whether there is neither an error nor a diverging epoch; they are dealt with here."""
        code = ErrorCode(data.error_code)
        replica = followed.replica
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leave_session(followed)
            self._out_of_range[followed.key] = followed
            return False
        if code != ErrorCode.NONE:
            self._failures_log.log(
                logging.INFO,
                "%s cannot be fetched from broker %d: %s",
                replica.topic_partition,
                self._leader_id,
                code.name,
            )
            self._failed(followed, code)
            return False
        if data.diverging_epoch is not None:
            try:
                diverging = data.diverging_epoch
                replica.truncate_to_epoch(diverging.epoch, diverging.end_offset, data.log_start_offset)
            except KafkaError as error:
                self._cannot_append(followed, error)
            return False
        return True

    def _cannot_append(self, followed: Followed, error: KafkaError) -> None:
        self._failures_log.log(
            logging.WARNING,
            "%s: what broker %d sent cannot be appended: %s",
            followed.replica.topic_partition,
            self._leader_id,
            error.message,
        )
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            self._fetchers.damaged_answers += 1
        self._failed(followed, error.code)

    def _take(self, followed: Followed, data: PartitionData | Found) -> None:
        replica = followed.replica
        log_start = replica.log.log_start_offset
        try:
            if data.records:
                replica.append_replicated(memoryview(data.records), followed.epoch)  # type: ignore[arg-type]
                self._changed[followed.key] = followed
            replica.learned(data.high_watermark, data.log_start_offset)
            if replica.log.log_start_offset != log_start:
                self._start_moved(followed)
        except KafkaError as error:
            self._cannot_append(followed, error)
            return
        followed.failures = 0
        if data.records and replica.log.log_end_offset < data.high_watermark and not self._is_in_sync(replica):
            self._throttle.note(replica, len(data.records))
            self._is_held_back(followed)

    def _is_in_sync(self, replica: Replica) -> bool:
        return replica.partition is not None and self._registered.broker_id in replica.partition.isr

    def _is_held_back(self, followed: Followed) -> bool:
        """Whether the throttle delays this partition. Delays are short, because the limit may be raised meanwhile."""
        throttle = self._throttle
        if self._is_in_sync(followed.replica) or not throttle.holds_back(followed.replica):
            return False
        seconds = min(throttle.allowance.seconds_in_debt, THROTTLE_CHECK_S)
        self._delay(followed, max(seconds, BACKOFF_MIN_S))  # a tiny debt is not worth a timer
        return True

    # -- out of range -----------------------------------------------------------------------------------------------

    def _ask_for_range(self, peer: Peer) -> None:
        """Ask for the leader's log start and end, because its log does not have the fetch offset.

        The replica then starts at the leader's log start, or truncates to its log end.
        """
        self._is_busy = True
        asked = dict(self._out_of_range)
        ends: list[dict[Key, int] | None] = []

        def done(answer: ListOffsetsResponse | Exception) -> None:
            ends.append(self._offsets(answer, asked))
            if len(ends) == 2:
                self._is_busy = False
                if not self._is_closed:
                    self._settle_range(asked, ends[0] or {}, ends[1] or {})
                    self._go_on()

        for timestamp in (LATEST, EARLIEST):
            request = ListOffsetsRequest(replica_id=self._registered.broker_id)
            topics: dict[str, ListOffsetsTopic] = {}
            for followed in asked.values():
                name, index = followed.replica.topic_partition
                topic = topics.setdefault(name, ListOffsetsTopic(name=name))
                topic.partitions.append(
                    ListOffsetsPartition(
                        partition_index=index, current_leader_epoch=followed.epoch, timestamp=timestamp
                    )
                )
            request.topics = list(topics.values())
            peer.send(request, done, timeout=self._settings.now.replica_socket_timeout_ms / 1000)

    @staticmethod
    def _offsets(answer: ListOffsetsResponse | Exception, asked: dict[Key, Followed]) -> dict[Key, int] | None:
        if not isinstance(answer, ListOffsetsResponse):
            return None
        keys = {tuple(followed.replica.topic_partition): key for key, followed in asked.items()}
        return {
            keys[topic.name, partition.partition_index]: partition.offset
            for topic in answer.topics
            for partition in topic.partitions
            if not partition.error_code and (topic.name, partition.partition_index) in keys
        }

    def _settle_range(self, asked: dict[Key, Followed], ends: dict[Key, int], starts: dict[Key, int]) -> None:
        for key, followed in asked.items():
            if self._out_of_range.get(key) is not followed:
                continue
            del self._out_of_range[key]
            replica = followed.replica
            if key not in ends or key not in starts or replica.leader is not None:
                self._failed(followed, ErrorCode.OFFSET_OUT_OF_RANGE)
                continue
            try:
                replica.move_into(starts[key], ends[key])
            except KafkaError as error:
                self._failures_log.log(
                    logging.ERROR,
                    "%s cannot be moved to its leader's range: %s",
                    replica.topic_partition,
                    error.message,
                )
                self._failed(followed, error.code)
                continue
            followed.failures += 1
            self._delay(followed, BACKOFF_MIN_S)
