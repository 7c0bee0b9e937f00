"""Handles a fetch request of a follower, from its arrival to its answer.

The fetch offset of a follower acknowledges everything below it. The leader records it before it reads, so that the
answer contains the resulting high watermark. Followers read up to the log end, consumers only up to the high watermark.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.broker.net.latency import Latency
from penstock.broker.net.request import Request
from penstock.broker.partitions.divergence import divergence
from penstock.broker.partitions.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from penstock.broker.partitions.follower_sessions import (
    FetchPosition,
    FollowerSession,
    FollowerSessions,
    Found,
    Position,
    asked_of,
)
from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.broker.partitions.replica import NO_EPOCH, Replica, ReplicationCounts
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.replication_frames import TOPIC_IDS_SINCE, ByTopic, encode_response
from penstock.broker.partitions.throttle import ReplicationThrottle
from penstock.broker.partitions.wakeups import Wakeups
from penstock.io.files import Buffer
from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.replication.partition import LeaderState
from penstock.security.authorizer import CLUSTER, Operation

logger = logging.getLogger("penstock.fetch")

REPLICA_STATE_SINCE = 15
NO_BROKER_EPOCH = -1
TOGETHER_S = 0.1


def follower_of(request: Request, message: FetchRequest) -> tuple[int, int]:
    """The id of the fetching broker and its broker epoch, if it sends one; ids of -1 and below are consumers."""
    if request.version >= REPLICA_STATE_SINCE:
        state = message.replica_state
        return (-1, NO_BROKER_EPOCH) if state is None else (state.replica_id, state.replica_epoch)
    return message.replica_id, NO_BROKER_EPOCH


@dataclass(slots=True, kw_only=True)
class FollowerFetches:
    """What the fetches of all followers share."""

    loop: asyncio.AbstractEventLoop
    replicas: Replicas
    hints: LeaderHints
    wakeups: Wakeups
    sessions: FollowerSessions
    throttle: ReplicationThrottle
    counts: ReplicationCounts
    latency: Latency

    def handle(
        self, request: Request, message: FetchRequest, broker_id: int, broker_epoch: int
    ) -> FetchResponse | None:
        if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
            return _forbidden(message)
        try:
            session = self.sessions.open(message, request.version, broker_id, broker_epoch)
        except KafkaError as error:
            return FetchResponse(error_code=error.code)
        return self.begin(request, message, session, asked_of(message, by_id=session.by_id))

    def begin(
        self, request: Request, message: FetchRequest, session: FollowerSession, asked: Iterable[FetchPosition]
    ) -> FetchResponse | None:
        """Handle a request whose session is open; `asked`: the partitions that it names."""
        return FollowerFetch(self, request, message, session).start(asked)


PartitionResult = tuple[Position, PartitionData | Found]


def refusal(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )


def _forbidden(message: FetchRequest) -> FetchResponse:
    """The answer to a client that poses as a follower: as if it had asked for topics it may not read, as in Kafka."""
    if not message.topics:
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    refusal(partition.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


class ColdRead(NamedTuple):
    """A read of data that is not in the page cache, for a thread."""

    data: PartitionData
    position: Position
    leader: LeaderState
    log: Log
    offset: int
    max_bytes: int
    end: int
    at_least_one: bool

    def read(self) -> Buffer | KafkaError:
        try:
            return self.log.read(self.offset, self.max_bytes, self.end, at_least_one=self.at_least_one).data
        except KafkaError as error:
            return error


class FollowerFetch:
    __slots__ = (
        "_bytes_missing", "_fetches", "_is_done", "_is_full", "_message", "_reading", "_reply", "_request", "_session",
        "deadline",
    )  # fmt: skip

    def __init__(
        self, fetches: FollowerFetches, request: Request, message: FetchRequest, session: FollowerSession
    ) -> None:
        self._fetches = fetches
        self._request = request
        self._message = message
        self._session = session
        self._is_full = message.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)  # the answer contains everything named
        self._bytes_missing = 0
        self._is_done = False
        self._reading: list[PartitionResult] | None = None
        self.deadline = math.inf

    def start(self, asked: Iterable[FetchPosition]) -> FetchResponse | None:
        session = self._session
        self._note_progress(session.update(self._message, asked))
        message, limits = self._message, self._request.connection.listener.limits
        if not self._is_full and message.max_wait_ms > 0 and session.positions and limits.may_park:
            # Read when all connections have been read: more records may come with them.
            self._bytes_missing = message.min_bytes
            self._park()
            self._wait()
            if session.has_news:
                self._fetches.wakeups.hold(self)
            return None
        session.tell_commits(self._fetches.loop.time())
        results, cold = self._read()
        if cold:
            self._park()
            self._read_cold(results, cold)
            return None
        if self._is_enough(results) or not limits.may_park:
            return self._response(results)
        self._park()
        self._wait()
        return None

    # -- progress ---------------------------------------------------------------------------------------------------

    def _note_progress(self, positions: list[Position]) -> None:
        """Record the fetch offsets, which are the follower's acknowledgements."""
        session, sessions = self._session, self._fetches.sessions
        broker_id, broker_epoch = session.broker_id, session.broker_epoch
        is_expected = sessions.expects(broker_id)
        now_ms = int(self._fetches.loop.time() * 1000)
        for position in positions:
            try:
                replica = position.replica
                leader = None if replica is None else replica.leader
                if (
                    replica is None
                    or leader is None  # else the replica is still the partition's own
                    or leader.leader_epoch != position.epoch
                    or broker_id not in leader.followers
                ):
                    replica, leader = self._find(position)
                log, offset = replica.log, position.offset
                has_latest_epoch = position.last_fetched_epoch == log.epochs.latest
                if offset != leader.log_end or not has_latest_epoch or position.sent_high_watermark < 0:
                    session.due[position] = None
                    session.has_news = True
                    if not has_latest_epoch and divergence(log, offset, position.last_fetched_epoch) is not None:
                        continue
                    if not log.log_start_offset <= offset <= leader.log_end:
                        continue
                if is_expected:
                    sessions.came(broker_id, replica)
                if position.isr is not leader.isr:
                    position.in_sync_changed(leader.isr)
                replica.fetched_by(broker_id, offset, position.log_start, broker_epoch, now_ms)
            except KafkaError:
                session.due[position] = None  # the read reports the error
                session.has_news = True

    def _find(self, position: Position) -> tuple[Replica, LeaderState]:
        replicas = self._fetches.replicas
        topic = position.topic
        if isinstance(topic, str):
            replica = replicas.get(topic, position.index)
            if replica is None:
                raise self._fetches.hints.not_here(topic, position.index)
        else:
            replica = replicas.get_by_id(topic, position.index)
            if replica is None:
                name = self._fetches.hints.topic_name(topic)
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                raise self._fetches.hints.not_here(name, position.index)
        position.watch(replica)
        leader = replica.leader_of(position.epoch)
        if self._session.broker_id not in leader.followers:
            has_epoch = position.epoch != NO_EPOCH
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica, leader

    # -- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> tuple[list[PartitionResult], list[ColdRead]]:
        """The results within the size limits. Data that a thread must read has a placeholder in them."""
        session = self._session
        left = self._message.max_bytes
        found_data = False
        results: list[PartitionResult] = []
        cold: list[ColdRead] = []
        session.has_news = False
        is_unlimited = self._fetches.throttle.is_unlimited
        for position in list(session.due):
            if left <= 0 and found_data and not self._is_full:
                session.has_news = True
                break
            try:
                found = self._read_plainly(position, left) if is_unlimited else None
            except KafkaError:
                found = None  # `_read_position` meets the same, and refuses this partition alone
            if found is not None:
                if found.records:
                    left -= len(found.records)
                    found_data = True
                elif not position.has_news(found):
                    continue
                results.append((position, found))
                continue
            session.has_news = True
            try:
                data, waits_for_disk = self._read_position(position, left, at_least_one=not found_data)
            except KafkaError as error:
                if error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
                    logger.error("fetch of broker %d from %s: %s", session.broker_id, position.topic, error)
                data, waits_for_disk = refusal(position.index, error.code), None
                del session.due[position]
            if waits_for_disk is not None:
                cold.append(waits_for_disk)
                left -= waits_for_disk.max_bytes
            elif data.records:
                left -= len(data.records)
            elif not data.error_code and data.diverging_epoch is None and not position.has_news(data):
                continue
            found_data |= waits_for_disk is not None or bool(data.records)
            results.append((position, data))
        return results, cold

    def _read_plainly(self, position: Position, left: int) -> Found | None:
        """What `_read_position` finds if everything is as usual: the follower has the leader's epoch, nothing is
        throttled, and the records fit and are in memory."""
        replica, session = position.replica, self._session
        leader = None if replica is None else replica.leader
        if (
            replica is None
            or leader is None
            or leader.leader_epoch != position.epoch
            or session.broker_id not in leader.followers
        ):
            return None
        log, offset, end = replica.log, position.offset, leader.log_end
        log_start = log.log_start_offset
        if position.last_fetched_epoch != log.epochs.latest:
            return None
        records: Buffer = b""
        if offset != end:
            if not log_start <= offset < end or position.is_doubtful:
                return None
            max_bytes = position.max_bytes if position.max_bytes < left else left
            recent = replica.tail.read(offset, end, max_bytes)
            if recent is not None:
                records = recent
            else:
                found = log.read_cached(offset, max_bytes, end, at_least_one=False)
                if found is None or not found.data:
                    return None
                records = found.data
        del session.due[position]
        return Found(leader.high_watermark, log_start, records)

    def _read_position(
        self, position: Position, left: int, *, at_least_one: bool
    ) -> tuple[PartitionData, ColdRead | None]:
        session = self._session
        replica, leader = self._find(position)
        log = replica.log
        data = PartitionData(
            partition_index=position.index,
            high_watermark=leader.high_watermark,
            last_stable_offset=leader.high_watermark,
            log_start_offset=log.log_start_offset,
            diverging_epoch=divergence(log, position.offset, position.last_fetched_epoch),
            aborted_transactions=None,
            records=b"",
        )
        if data.diverging_epoch is None and position.offset != leader.log_end:
            if position.offset < log.log_start_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)  # also to a follower that is throttled
            throttle = self._fetches.throttle
            is_free = throttle.is_unlimited or leader.waits_for(
                session.broker_id, int(self._fetches.loop.time() * 1000)
            )
            if left <= 0 or (not is_free and throttle.holds_back(replica)):
                return data, None  # it stays due
            max_bytes = min(position.max_bytes, left)
            found = log.read_cached(
                position.offset,
                max_bytes,
                leader.log_end,
                at_least_one=at_least_one,
                doubted=position.is_doubtful,
            )
            if found is None:
                del session.due[position]
                cold = ColdRead(data, position, leader, log, position.offset, max_bytes, leader.log_end, at_least_one)
                return data, cold
            if not found.data:
                return data, None  # the next batch does not fit; the position stays due
            data.records = found.data
            if not is_free:
                throttle.note(replica, len(found.data))
        del session.due[position]
        return data, None

    def _read_cold(self, results: list[PartitionResult], cold: list[ColdRead]) -> None:
        self._reading = results
        future = self._fetches.loop.run_in_executor(None, lambda: [each.read() for each in cold])
        future.add_done_callback(lambda done: self._was_read(cold, done))

    def _was_read(self, cold: list[ColdRead], future: asyncio.Future[list[Buffer | KafkaError]]) -> None:
        results, self._reading = self._reading, None
        if self._is_done or future.cancelled() or results is None:
            return
        if future.exception() is not None:
            logger.error("a follower's fetch from disk failed", exc_info=future.exception())
            self._request.connection.abort()
            return
        for each, outcome in zip(cold, future.result(), strict=True):
            replica = each.position.replica
            if replica is None or replica.leader is not each.leader:
                outcome = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if isinstance(outcome, KafkaError):
                refused = refusal(each.position.index, outcome.code)
                results = [(position, refused if data is each.data else data) for position, data in results]
            else:
                each.data.records = outcome
        self._finish(results)

    def _is_enough(self, results: list[PartitionResult]) -> bool:
        message = self._message
        if message.max_wait_ms <= 0 or not self._session.positions:
            return True
        found = 0
        for _, data in results:
            if type(data) is Found:
                found += len(data.records)
            elif data.error_code or data.diverging_epoch is not None:  # type: ignore[union-attr]
                return True
            else:
                found += len(data.records or b"")
        self._bytes_missing = message.min_bytes - found
        if self._bytes_missing <= 0 or (results and self._session.tells_commits_at_once and not self._is_full):
            return True
        for position, _ in results:
            self._session.due[position] = None  # not reported yet
        self._session.has_news |= found > 0
        return False

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _park(self) -> None:
        self._reply = self._request.connection.park_quiet()
        self._reply.on_lost = self._forget

    def _wait(self) -> None:
        """Wait until there is news or the deadline passes.

        Deadlines are rounded to multiples of `TOGETHER_S`, so that a broker with many followers wakes up once for all
        of them and not once for each: waking up is most of what an idle broker does.
        """
        fetches = self._fetches
        seconds = min(self._message.max_wait_ms / 1000, fetches.sessions.wait_max(self._session.broker_id))
        deadline = fetches.loop.time() + seconds
        if seconds >= 2 * TOGETHER_S:
            deadline -= deadline % TOGETHER_S
        self.deadline = deadline
        self._session.wait(self)

    def cut_short(self) -> None:
        """End the wait now: the follower will soon have new partitions to fetch."""
        self.deadline = self._fetches.loop.time()
        self._session.wait(self)

    def data_arrived(self, size: int) -> bool:
        self._bytes_missing -= size
        return self._bytes_missing <= 0

    def wake(self) -> None:
        self._look_again(is_over=False)

    def expire(self) -> None:
        self._look_again(is_over=True)
        self._fetches.wakeups.run()

    def _look_again(self, *, is_over: bool) -> None:
        if self._is_done or self._reading is not None:
            return
        session, now = self._session, self._fetches.loop.time()
        if is_over:
            session.tell_commits(now)
        else:
            session.tell_old_commits(now)
        try:
            results, cold = self._read()
            if cold:
                self._read_cold(results, cold)
            elif self._is_enough(results) or is_over:
                self._finish(results)
        except Exception:  # noqa: BLE001 - it is logged there
            self._request.failed()

    def _finish(self, results: list[PartitionResult]) -> None:
        self._forget()
        request = self._request
        found = _plain_results(results) if request.version >= TOPIC_IDS_SINCE else None
        if found is None:
            request.complete(self._reply, self._response(results))
        elif self._reply.is_wanted:
            self._note_sent(results)
            self._reply.complete(encode_response(request.correlation_id, self._session.id, found))

    def _forget(self) -> None:
        self._is_done = True
        if self._session.waiting is self:
            self._session.waiting = None
        if not self._session.id:
            self._session.close()

    # -- the answer -------------------------------------------------------------------------------------------------

    def _response(self, results: list[PartitionResult]) -> FetchResponse:
        session = self._session
        response = FetchResponse(session_id=session.id)
        by_topic: dict[str | bytes, FetchableTopicResponse] = {}
        self._note_sent(results)
        for position, found in results:
            data = partition_data(position.index, found) if isinstance(found, Found) else found
            topic = by_topic.get(position.topic)
            if topic is None:
                if isinstance(position.topic, str):
                    topic = FetchableTopicResponse(topic=position.topic)
                else:
                    topic = FetchableTopicResponse(topic_id=position.topic)
                by_topic[position.topic] = topic
                response.responses.append(topic)
            topic.partitions.append(data)
        if not session.id:
            session.close()
        return response

    def _note_sent(self, results: list[PartitionResult]) -> None:
        unconfirmed = self._session.unconfirmed
        sent = 0
        for position, data in results:
            records = data.records
            if records:
                position.sent_from = position.offset
                unconfirmed[position] = None
                sent += len(records)
            if type(data) is Found or data.diverging_epoch is None:  # type: ignore[union-attr]
                position.sent_high_watermark = data.high_watermark
                position.sent_log_start = data.log_start_offset
            else:
                position.sent_high_watermark = -1  # a follower whose log diverges takes only the epoch
        self._fetches.counts.bytes_out += sent


def partition_data(index: int, found: Found) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=found.high_watermark,
        last_stable_offset=found.high_watermark,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        records=found.records,
    )


def _plain_results(results: list[PartitionResult]) -> ByTopic | None:
    """The results by topic id and partition; None if one of them is not plain."""
    by_topic: ByTopic = {}
    for position, data in results:
        if type(data) is not Found or type(position.topic) is not bytes:
            return None
        partitions = by_topic.get(position.topic)
        if partitions is None:
            partitions = by_topic[position.topic] = []
        partitions.append((position.index, data))
    return by_topic
