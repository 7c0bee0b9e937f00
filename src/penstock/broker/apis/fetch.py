"""Fetch: long poll over many partitions, with incremental sessions.

Versions 4-18: 7 adds sessions, 9 fencing by leader epoch, 11 reading from followers, 12 divergence by epoch, 13 topic
ids, 15 the epoch of a follower, 16 the current leader in errors.

This module serves consumers, which read below the high watermark; `follower_fetch.py` serves followers. If racks are
configured, the leader sends a consumer to a replica in its own rack (KIP-392).

The reply holds at least one whole batch from the first partition that has data, whatever the limits are, so that a
consumer with a small buffer makes progress. A partition with an error makes the broker answer at once. Otherwise the
request waits, registered with each of its replicas, until `min_bytes` can be read or `max_wait` is over. The connection
is muted while it waits.

A thread reads data that has left the page cache; it gets a log, offsets and limits (`ColdRead`). All other state of
replicas, producers and sessions belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.apis.services import FetchServices
from penstock.broker.net.request import Request
from penstock.broker.partitions import follower_fetch
from penstock.broker.partitions.divergence import divergence
from penstock.broker.partitions.fetch_sessions import FetchContext, PartitionKey, SessionPartition
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replica_selector import closest_replica
from penstock.log.log import Log, Slice
from penstock.log.transaction_index import AbortedTransaction as Aborted
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from penstock.security.authorizer import Operation, Resource, topic_resource

VERSIONS = (4, 18)

READ_COMMITTED = 1
DEBUGGING_CONSUMER = -2  # reads from any replica, up to its end
FOLLOWERS_SINCE = 11
LEADER_HINTS_SINCE = 16
PARTITION_SIZE = 40  # of a partition in a response, without its records
RACK_AWARE = ("org.apache.kafka.common.replica.RackAwareReplicaSelector", "RackAwareReplicaSelector")

logger = logging.getLogger("penstock.fetch")


def handle(services: FetchServices, request: Request, message: FetchRequest) -> FetchResponse | None:
    broker_id, broker_epoch = follower_fetch.follower_of(request, message)
    if broker_id >= 0:
        request.connection.latency = services.followers.latency
        request.connection.is_of_follower = True
        request.meter = None  # quotas are for clients
        return services.followers.handle(request, message, broker_id, broker_epoch)
    try:
        context = services.sessions.open(message, request.version, int(services.loop.time() * 1000))
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return Fetch(services, request, message, context).start()


class ColdRead(NamedTuple):
    """Records of a partition that are not in the page cache: a thread reads them."""

    data: PartitionData
    replica: Replica
    log: Log
    offset: int
    max_bytes: int
    limit: int
    at_least_one: bool
    with_aborted: bool

    def read(self) -> tuple[Slice, list[Aborted]] | KafkaError:
        log, offset, max_bytes, limit = self.log, self.offset, self.max_bytes, self.limit
        try:
            if self.with_aborted:
                return log.read_committed(offset, max_bytes, limit, at_least_one=self.at_least_one)
            return log.read(offset, max_bytes, limit, at_least_one=self.at_least_one), []
        except KafkaError as error:
            return error


class Fetch:
    """One fetch request, from its arrival to its response."""

    __slots__ = (
        "_answer", "_bytes_missing", "_committed", "_context", "_deadline", "_is_debugging", "_is_done", "_is_reading",
        "_max_bytes", "_may_read_followers", "_message", "_min_bytes", "_request", "_sent", "_services", "_waits_with",
    )  # fmt: skip

    def __init__(self, services: FetchServices, request: Request, message: FetchRequest, context: FetchContext) -> None:
        self._services = services
        self._request = request
        self._message = message
        self._context = context
        self._committed = message.isolation_level == READ_COMMITTED
        self._is_debugging = message.replica_id == DEBUGGING_CONSUMER
        self._may_read_followers = self._is_debugging or request.version >= FOLLOWERS_SINCE
        self._min_bytes, self._max_bytes = message.min_bytes, message.max_bytes
        if request.meter is not None:
            self._max_bytes = request.meter.fetch_max_bytes(message.max_bytes)
            self._min_bytes = min(message.min_bytes, self._max_bytes)
        self._bytes_missing = 0
        self._is_done = False
        self._is_reading = False
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_with: list[Replica] = []
        self._sent: list[tuple[Replica, int, int]] = []  # bytes and messages of the last read

    def start(self) -> FetchResponse | None:
        results, cold = self._read()
        if cold:
            self._park()
            self._read_cold(results, cold)
            return None
        if self._is_enough(results) or not self._request.connection.listener.limits.may_park:
            return self._response(results)
        self._park()
        self._wait()
        return None

    # -- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> tuple[list[PartitionData], list[ColdRead]]:
        """Read every partition once, within the limits. Partitions for a thread to read have a placeholder."""
        left = min(self._max_bytes, self._services.settings.now.fetch_max_bytes)
        results: list[PartitionData] = []
        all_cold: list[ColdRead] = []
        found_data = False
        self._sent = []
        for wanted in self._context.partitions:
            data, cold = self._read_partition(wanted, left, at_least_one=not found_data)
            if cold is not None:
                found_data = True
                left -= cold.max_bytes
                all_cold.append(cold)
            elif data.records:
                found_data = True
                left -= len(data.records)
            results.append(data)
        return results, all_cold

    def _read_partition(
        self, wanted: SessionPartition, left: int, *, at_least_one: bool
    ) -> tuple[PartitionData, ColdRead | None]:
        asked = wanted.request
        try:
            replica = self._replica(wanted)
            log = replica.log
            offset = asked.fetch_offset
            high_watermark = replica.high_watermark
            data = PartitionData(
                partition_index=asked.partition,
                high_watermark=high_watermark,
                last_stable_offset=log.last_stable_offset(high_watermark),
                log_start_offset=log.log_start_offset,
                diverging_epoch=divergence(log, offset, asked.last_fetched_epoch),
                aborted_transactions=None,
                records=b"",
            )
            if data.diverging_epoch is not None:
                return data, None
            preferred = self._preferred_replica(replica, offset)
            if preferred is not None:
                data.preferred_read_replica = preferred
                return data, None
            limit = data.last_stable_offset if self._committed else high_watermark
            if self._is_debugging:
                limit = log.log_end_offset
            max_bytes = min(asked.partition_max_bytes, left)
            found = log.read_cached(
                offset,
                max_bytes,
                limit,
                at_least_one=at_least_one,
                takes_ranges=self._request.connection.sends_files,
            )
            if found is None:
                return data, ColdRead(data, replica, log, offset, max_bytes, limit, at_least_one, self._committed)
            aborted = log.aborted_transactions(offset, data.last_stable_offset) if self._committed else []
            self._found(replica, offset, data, found, aborted)
            return data, None
        except KafkaError as error:
            return self._refusal(wanted, error), None

    def _found(
        self, replica: Replica, offset: int, data: PartitionData, found: Slice, aborted: Sequence[Aborted]
    ) -> None:
        data.records = found.content
        if data.records:
            messages = found.next_offset - max(offset, found.first_offset)
            self._sent.append((replica, len(data.records), messages))
        if self._committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
                for transaction in aborted
            ]

    def _refusal(self, wanted: SessionPartition, error: KafkaError) -> PartitionData:
        partition, code = wanted.request.partition, error.code
        if code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
            logger.error("fetch from %r partition %d: %s", wanted.topic, partition, error)
        return follower_fetch.refusal(partition, self._services.hints.checked(code))

    def _replica(self, wanted: SessionPartition) -> Replica:
        replicas = self._services.replicas
        topic = wanted.topic
        asked = wanted.request
        if isinstance(topic, str):
            replica = replicas.get(topic, asked.partition)
            if replica is None:
                self._check_may_read(topic_resource(topic))
                raise self._services.hints.not_here(topic, asked.partition)
        else:
            replica = replicas.get_by_id(topic, asked.partition)
            if replica is None:
                raise self._lost_topic_error(wanted)
            wanted.name = replica.topic_partition.topic
        self._check_may_read(replica.resource)
        if self._may_read_followers:
            replica.check_epoch(asked.current_leader_epoch)
            if replica.leader is None and asked.fetch_offset > replica.log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)  # this replica lacks it so far: only the leader knows
        else:
            replica.leader_of(asked.current_leader_epoch)
        return replica

    def _check_may_read(self, resource: Resource) -> None:
        if not self._request.may(Operation.READ, resource):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _lost_topic_error(self, wanted: SessionPartition) -> KafkaError:
        """The error for a topic id that is not here: unknown, elsewhere, recreated under its name, or deleted."""
        assert isinstance(wanted.topic, bytes)
        topics = self._services.metadata.image.topics
        name = topics.name_of(wanted.topic)
        if name is not None:
            wanted.name = name
            self._check_may_read(topic_resource(name))
            return self._services.hints.not_here(name, wanted.request.partition)
        if wanted.name is not None and topics.by_name(wanted.name) is not None:
            return KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)

    def _preferred_replica(self, replica: Replica, offset: int) -> int | None:
        """A replica in the consumer's own rack that can serve it; None if that is this one."""
        rack = self._message.rack_id
        if not rack or replica.leader is None or self._services.settings.now.replica_selector_class not in RACK_AWARE:
            return None
        return closest_replica(replica.leader, offset, rack, self._services.metadata.image.brokers)

    def _is_enough(self, results: list[PartitionData]) -> bool:
        message = self._message
        if message.max_wait_ms <= 0 or not results:
            return True
        found = 0
        for data in results:
            if data.error_code or data.diverging_epoch is not None or data.preferred_read_replica >= 0:
                return True
            found += len(data.records or b"")
        self._bytes_missing = self._min_bytes - found
        return self._bytes_missing <= 0

    # -- waiting --------------------------------------------------------------------------------------------------

    def _park(self) -> None:
        self._answer = self._request.park(mute=True, on_lost=self._forget)

    def _wait(self) -> None:
        for wanted in self._context.partitions:
            topic = wanted.topic
            replicas = self._services.replicas
            index = wanted.request.partition
            replica = replicas.get(topic, index) if isinstance(topic, str) else replicas.get_by_id(topic, index)
            if replica is not None:
                replica.waiting_fetches[self] = None
                self._waits_with.append(replica)
        self._deadline = self._services.loop.call_later(self._message.max_wait_ms / 1000, self._expire)

    def data_arrived(self, size: int) -> bool:
        self._bytes_missing -= size
        return self._bytes_missing <= 0

    def wake(self) -> None:
        self._look_again(is_over=False)

    def _expire(self) -> None:
        self._look_again(is_over=True)

    def _look_again(self, *, is_over: bool) -> None:
        if self._is_done or self._is_reading:
            return
        try:
            results, cold = self._read()
            if cold:
                self._read_cold(results, cold)
            elif self._is_enough(results) or is_over:
                self._finish(results)
        except Exception:  # noqa: BLE001 - it is logged there
            self._request.failed()

    def _read_cold(self, results: list[PartitionData], cold: list[ColdRead]) -> None:
        """Read data that left the page cache on a thread, then answer with whatever it found."""
        self._is_reading = True
        future = self._services.loop.run_in_executor(None, lambda: [each.read() for each in cold])
        future.add_done_callback(lambda done: self._was_read(results, cold, done))

    def _was_read(
        self,
        results: list[PartitionData],
        cold: list[ColdRead],
        future: asyncio.Future[list[tuple[Slice, list[Aborted]] | KafkaError]],
    ) -> None:
        if self._is_done or future.cancelled():
            return
        if future.exception() is not None:
            logger.error("a fetch from disk failed", exc_info=future.exception())
            self._request.connection.abort()
            return
        refused: dict[int, KafkaError] = {}
        for each, outcome in zip(cold, future.result(), strict=True):
            if isinstance(outcome, KafkaError):
                refused[id(each.data)] = outcome
            else:
                found, aborted = outcome
                self._found(each.replica, each.offset, each.data, found, aborted)
        self._finish(
            [
                self._refusal(wanted, refused[id(data)]) if id(data) in refused else data
                for wanted, data in zip(self._context.partitions, results, strict=True)
            ]
        )

    def _finish(self, results: list[PartitionData]) -> None:
        self._forget()
        self._answer(self._response(results))

    def _forget(self) -> None:
        self._is_done = True
        if self._deadline is not None:
            self._deadline.cancel()
        for replica in self._waits_with:
            replica.waiting_fetches.pop(self, None)
        self._waits_with.clear()

    # -- the response ---------------------------------------------------------------------------------------------

    def _response(self, results: list[PartitionData]) -> FetchResponse:
        meter = self._request.meter
        if meter is not None and meter.fetched(_size(results)):
            return self._throttled()
        for replica, size, messages in self._sent:
            replica.sent(size, messages)
        context = self._context
        response = FetchResponse(session_id=context.session_id)
        session = context.session
        by_topic: dict[str | bytes, FetchableTopicResponse] = {}
        with_data: list[PartitionKey] = []
        for wanted, data in zip(context.partitions, results, strict=True):
            if session is not None:
                has_news = wanted.has_news(data)
                if not has_news and context.is_incremental:
                    continue
                if data.records:
                    with_data.append((wanted.topic, data.partition_index))
            topic = by_topic.get(wanted.topic)
            if topic is None:
                if isinstance(wanted.topic, str):
                    topic = FetchableTopicResponse(topic=wanted.topic)
                else:
                    topic = FetchableTopicResponse(topic_id=wanted.topic)
                by_topic[wanted.topic] = topic
                response.responses.append(topic)
            topic.partitions.append(data)
            if data.error_code and self._request.version >= LEADER_HINTS_SINCE:
                self._add_hint(response, wanted, data)
        if session is not None:
            session.rotate(with_data)
        return response

    def _throttled(self) -> FetchResponse:
        """An empty response: the client's next fetch asks for the same data again."""
        context = self._context
        if not context.is_incremental and context.session is not None:
            # The client would not find its partitions in the response, and begins another session.
            self._services.sessions.close(context.session)
            context.session = None
        return FetchResponse(session_id=context.session_id)

    def _add_hint(self, response: FetchResponse, wanted: SessionPartition, data: PartitionData) -> None:
        name = wanted.topic if isinstance(wanted.topic, str) else wanted.name
        if name is None:
            return
        found = self._services.hints.hint(self._request.connection, name, data.partition_index, data.error_code)
        if found is None:
            return
        data.current_leader = LeaderIdAndEpoch(leader_id=found.leader_id, leader_epoch=found.leader_epoch)
        if all(endpoint.node_id != found.leader_id for endpoint in response.node_endpoints):
            response.node_endpoints.append(
                NodeEndpoint(node_id=found.leader_id, host=found.host, port=found.port, rack=found.rack)
            )


def _size(results: Sequence[PartitionData]) -> int:
    """The size of a response, within a few bytes."""
    return sum(PARTITION_SIZE + len(data.records or b"") for data in results)
