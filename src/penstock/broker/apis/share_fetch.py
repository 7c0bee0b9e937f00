"""ShareFetch: acquire records for a member of a share group, and acknowledge others on the way.

Versions 1-2: 2 adds the strict limit of records and the renewal of locks. The first request of a member opens its share
session, and later ones name only what has changed (`shares/sessions.py`).

Acknowledgements are persisted while records are looked for; the response waits for both. Records are acquired only when
the fetch is about to be answered: when there are `min_bytes` of them, or `max_wait` is over. Until then the request
waits with each of its share partitions.

A response has whole batches, which may hold more than was acquired. A fetch reads about as many bytes as its records
need, by the size of those before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.apis.services import ShareServices
from penstock.broker.apis.share_requests import Acknowledging, find, session_of
from penstock.broker.net.request import Request
from penstock.broker.shares.served_partition import ServedPartition
from penstock.io.files import Buffer
from penstock.log.log import Slice
from penstock.log.transaction_index import AbortedTransaction
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionResult,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from penstock.records.batch import read_header
from penstock.shares.aborted import ReadBatch, aborted_spans
from penstock.shares.sessions import FINAL_EPOCH, PartitionKey, SessionKey, ShareSession
from penstock.shares.states import AcquiredRange, AcquireMode

VERSIONS = (1, 2)

READ_AT_LEAST = 64 * 1024
READ_AHEAD = 1.25  # of the bytes that the records are expected to take
PARTITION_SIZE = 40  # of a partition in a response, without its records

logger = logging.getLogger("penstock.fetch")


def handle(services: ShareServices, request: Request, message: ShareFetchRequest) -> ShareFetchResponse | None:
    try:
        key = session_of(services, request, message.group_id, message.member_id)
        _check_renewal(message)
        mode = AcquireMode(message.share_acquire_mode)
        session = services.shares.open_session(
            key,
            message.share_session_epoch,
            [
                PartitionKey(topic.topic_id, partition.partition_index)
                for topic in message.topics
                for partition in topic.partitions
            ],
            [
                PartitionKey(topic.topic_id, partition)
                for topic in message.forgotten_topics_data
                for partition in topic.partitions
            ],
            has_acknowledgements=any(
                partition.acknowledgement_batches for topic in message.topics for partition in topic.partitions
            ),
            connection=request.connection,
        )
    except ValueError:
        return _refusal(KafkaError(ErrorCode.INVALID_REQUEST, "Unknown share acquire mode."))
    except KafkaError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # Later, so that the client does not try again at once.
            answer = request.park(mute=True)
            services.loop.call_later(max(0, message.max_wait_ms) / 1000, answer, _refusal(error))
            return None
        return _refusal(error)
    ShareFetch(services, request, message, session, mode).start()
    return None


def _refusal(error: KafkaError) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error.code, error_message=error.detail)


def _check_renewal(message: ShareFetchRequest) -> None:
    """A request that renews locks must not wait: they would end before the client learns of it."""
    limits = (message.max_bytes, message.min_bytes, message.max_records, message.max_wait_ms)
    if message.is_renew_ack and any(limits):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "maxBytes, minBytes, maxRecords and maxWaitMs must be 0 if isRenewAck is true.",
        )


class Found(NamedTuple):
    """What was read of a share partition; nothing of it is acquired yet."""

    key: PartitionKey
    served: ServedPartition
    offset: int
    slice: Slice
    aborted: list[AbortedTransaction]


class ColdRead(NamedTuple):
    """Records that are not in the page cache: a thread reads them."""

    key: PartitionKey
    served: ServedPartition
    offset: int
    max_bytes: int
    end: int
    is_committed: bool

    def read(self) -> tuple[Slice, list[AbortedTransaction]] | KafkaError:
        log = self.served.replica.log
        try:
            if self.is_committed:
                return log.read_committed(self.offset, self.max_bytes, self.end)
            return log.read(self.offset, self.max_bytes, self.end), []
        except KafkaError as error:
            return error


class ShareFetch:
    """One request, from its arrival to its response."""

    def __init__(
        self,
        services: ShareServices,
        request: Request,
        message: ShareFetchRequest,
        session: ShareSession,
        mode: AcquireMode,
    ) -> None:
        self._services = services
        self._request = request
        self._message = message
        self._session = session
        self._mode = mode
        self._key: SessionKey = session.key
        self._is_final = message.share_session_epoch == FINAL_EPOCH
        self._min_bytes, self._max_bytes = message.min_bytes, message.max_bytes
        if request.meter is not None:
            self._max_bytes = request.meter.fetch_max_bytes(message.max_bytes)
            self._min_bytes = min(message.min_bytes, self._max_bytes)
        self._max_bytes = min(self._max_bytes, services.settings.now.fetch_max_bytes)
        self._acknowledging = Acknowledging(services, request, self._key, is_renewal=message.is_renew_ack)
        self._results: dict[PartitionKey, PartitionResult] = {}
        self._is_acknowledged = False
        self._is_fetched = False
        self._is_looking = False
        self._is_reading = False
        self._is_lost = False
        self._waits_with: dict[ServedPartition, None] = {}
        self._deadline: asyncio.TimerHandle | None = None
        self._answer: Callable[[ShareFetchResponse], None]

    def start(self) -> None:
        message = self._message
        self._answer = self._request.park(mute=True, on_lost=self._lose)
        self._acknowledging.run(message.topics, self._acknowledged)
        if self._is_final or message.is_renew_ack or not message.max_records or not message.max_bytes:
            self._fetched()
            return
        may_wait = message.max_wait_ms > 0 and self._request.connection.listener.limits.may_park
        self._look(is_over=not may_wait)
        if not self._is_fetched and not self._is_reading:
            self._wait()

    def _acknowledged(self) -> None:
        self._is_acknowledged = True
        self._finish()

    def _fetched(self) -> None:
        if not self._is_fetched:
            self._is_fetched = True
            self._stop_waiting()
            self._finish()

    # -- looking for records ------------------------------------------------------------------------------------------

    def _look_again(self, *, is_over: bool) -> None:
        try:
            self._look(is_over=is_over)
        except Exception:  # noqa: BLE001 - it is logged there
            self._request.failed()

    def _look(self, *, is_over: bool) -> None:
        """Find records, and acquire them if that is enough, or if time is over."""
        self._is_looking = True
        while True:
            found, cold = self._read_all()
            if cold:
                self._read_cold(found, cold)
                break
            size = sum(len(each.slice.data) for each in found)
            is_enough = is_over or self._results or (found and size >= self._min_bytes)
            if not is_enough or self._acquire(found) or is_over:
                break
            # All that was found are records of aborted transactions: look at what follows.
        self._is_looking = False
        if not self._is_reading and (is_over or self._results):
            self._fetched()

    def _read_all(self) -> tuple[list[Found], list[ColdRead]]:
        found: list[Found] = []
        cold: list[ColdRead] = []
        left = self._max_bytes
        for key in self._session.partitions:
            served = self._served(key)
            if served is None or not served.has_records:
                continue
            result = self._read(key, served, left, at_least_one=not found and not cold)
            if isinstance(result, ColdRead):
                cold.append(result)
                left -= result.max_bytes
            elif result is not None and result.slice.data:
                found.append(result)
                left -= len(result.slice.data)
        return found, cold

    def _served(self, key: PartitionKey) -> ServedPartition | None:
        """None if there is an error, which is noted, or if the share partition is still being loaded."""
        if key in self._results:
            return None
        found = find(self._services, self._request, key)
        if found.replica is None:
            self._refuse(key, found.error)
            return None
        served = self._services.shares.serve(self._key.group_id, found.replica)
        if served.failure is not None:
            self._refuse(key, served.failure.code)
        elif self._deadline is not None:
            self._wait_with(served)
        return served if served.core is not None else None

    def _refuse(self, key: PartitionKey, code: ErrorCode, message: str | None = None) -> None:
        self._results[key] = PartitionResult(
            partition_index=key.partition, error_code=code, error_message=message or code.text, records=b""
        )

    def _read(
        self, key: PartitionKey, served: ServedPartition, left: int, *, at_least_one: bool
    ) -> Found | ColdRead | None:
        assert served.core is not None
        log, offset, end = served.replica.log, served.core.next_fetch_offset, served.end
        is_committed = served.settings().is_committed
        expected = int(READ_AHEAD * self._message.max_records * served.bytes_per_record)
        max_bytes = min(left, max(READ_AT_LEAST, expected))
        try:
            found = log.read_cached(offset, max_bytes, end, at_least_one=at_least_one)
            if found is None:
                return ColdRead(key, served, offset, max_bytes, end, is_committed)
            return Found(key, served, offset, found, log.aborted_transactions(offset, end) if is_committed else [])
        except KafkaError as error:
            self._failed_to_read(key, served, error)
            return None

    def _failed_to_read(self, key: PartitionKey, served: ServedPartition, error: KafkaError) -> None:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return  # the log start has moved, or will have records there
        logger.error("share fetch from %s: %s", served.replica.topic_partition, error)
        self._refuse(key, error.code)

    def _read_cold(self, found: list[Found], cold: list[ColdRead]) -> None:
        """Let a thread read what has left the page cache, and acquire what it finds."""
        self._is_reading = True
        for each in cold:
            each.served.is_read_by_thread = True
        future = self._services.loop.run_in_executor(None, lambda: [each.read() for each in cold])
        future.add_done_callback(lambda done: self._was_read(found, cold, done))

    def _was_read(
        self,
        found: list[Found],
        cold: list[ColdRead],
        future: asyncio.Future[list[tuple[Slice, list[AbortedTransaction]] | KafkaError]],
    ) -> None:
        for each in cold:
            each.served.is_read_by_thread = False
        if future.cancelled():
            return
        if future.exception() is not None:
            logger.error("a share fetch from disk failed", exc_info=future.exception())
            self._request.connection.abort()
        elif not self._is_fetched:
            for each, outcome in zip(cold, future.result(), strict=True):
                if isinstance(outcome, KafkaError):
                    self._failed_to_read(each.key, each.served, outcome)
                else:
                    found.append(Found(each.key, each.served, each.offset, *outcome))
            # Others may have fetched meanwhile what was found in the page cache.
            self._acquire([each for each in found if each.served.has_records])
            self._fetched()
        for each in cold:
            each.served.wake()

    # -- acquiring ----------------------------------------------------------------------------------------------------

    def _acquire(self, found: list[Found]) -> bool:
        """Returns whether the request can be answered, with records or without."""
        meter = self._request.meter
        if meter is not None and meter.fetched(sum(PARTITION_SIZE + len(each.slice.data) for each in found)):
            self._fetched()  # the client is throttled, and asks again
            return True
        left = self._message.max_records
        for each in found:
            if left > 0:
                left -= self._acquire_from(each, left)
        return bool(self._results)

    def _acquire_from(self, found: Found, max_records: int) -> int:
        key, served, offset, read, aborted = found
        core = served.core
        if core is None:
            return 0
        data = read.data
        batches, positions = _batches(data)
        spans = [batch.span for batch in batches]
        acquired = core.acquire(
            self._key.member_id,
            offset,
            spans,
            served.now_ms,
            max_records=max_records,
            batch_size=max(1, self._message.batch_size),
            mode=self._mode,
            aborted=aborted_spans(batches, [(each.producer_id, each.first_offset) for each in aborted])
            if aborted
            else (),
        )
        if batches:
            served.bytes_per_record = len(data) / (batches[-1].last - batches[0].first + 1)
        served.changed()
        if not acquired:
            return 0
        records = _within(data, batches, positions, acquired)
        count = sum(each.size for each in acquired)
        served.replica.sent(len(records), count)
        self._results[key] = PartitionResult(
            partition_index=key.partition,
            records=records,
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=delivery_count)
                for first, last, delivery_count in acquired
            ],
        )
        return count

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._deadline = self._services.loop.call_later(self._message.max_wait_ms / 1000, self._expire)
        for key in self._session.partitions:
            self._served(key)
        if self._results:
            self._fetched()

    def _wait_with(self, served: ServedPartition) -> None:
        if served not in self._waits_with:
            self._waits_with[served] = None
            served.wait(self)

    def wake(self) -> None:
        if self._is_fetched or self._is_reading or self._is_looking:
            return
        for served in self._waits_with:
            if served.failure is not None:
                self._refuse(PartitionKey(served.key.topic_id, served.key.partition), served.failure.code)
        self._look_again(is_over=False)

    def _expire(self) -> None:
        if not self._is_fetched and not self._is_reading:
            self._look_again(is_over=True)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        for served in self._waits_with:
            served.forget(self)
        self._waits_with = {}

    def _lose(self) -> None:
        """The client has disconnected; its session ends, and with it what it has acquired."""
        self._is_lost = self._is_fetched = True
        self._stop_waiting()

    # -- the response -------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if not self._is_acknowledged or not self._is_fetched or self._is_lost:
            return
        self._answer(self._response())
        if self._is_final:
            self._services.shares.close_session(self._session)

    def _response(self) -> ShareFetchResponse:
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._services.shares.settings_of(
                self._key.group_id
            ).delivery.record_lock_duration_ms
        )
        results = self._results
        if not self._is_final:
            for key in list(self._session.partitions):
                result = results.get(key) or PartitionResult(partition_index=key.partition, records=b"")
                if self._session.has_news(key, has_records=bool(result.records), has_error=bool(result.error_code)):
                    results[key] = result
        for key, code in self._acknowledging.results.items():
            result = results.setdefault(key, PartitionResult(partition_index=key.partition, records=b""))
            result.acknowledge_error_code = code
            result.acknowledge_error_message = code.text if code else None
        by_topic: dict[bytes, ShareFetchableTopicResponse] = {}
        for key, result in results.items():
            topic = by_topic.get(key.topic_id)
            if topic is None:
                topic = by_topic[key.topic_id] = ShareFetchableTopicResponse(topic_id=key.topic_id)
                response.responses.append(topic)
            topic.partitions.append(result)
            self._add_hint(response, key, result)
        return response

    def _add_hint(self, response: ShareFetchResponse, key: PartitionKey, result: PartitionResult) -> None:
        code = result.error_code or result.acknowledge_error_code
        name = self._services.metadata.image.topics.name_of(key.topic_id) if code else None
        if name is None:
            return
        found = self._services.hints.hint(self._request.connection, name, key.partition, code)
        if found is None:
            return
        result.current_leader = LeaderIdAndEpoch(leader_id=found.leader_id, leader_epoch=found.leader_epoch)
        if all(endpoint.node_id != found.leader_id for endpoint in response.node_endpoints):
            response.node_endpoints.append(
                NodeEndpoint(node_id=found.leader_id, host=found.host, port=found.port, rack=found.rack)
            )


def _batches(data: Buffer) -> tuple[list[ReadBatch], list[int]]:
    """The batches, and where each begins; the last position is the end."""
    batches, positions, position = [], [], 0
    while position < len(data):
        header = read_header(data, position)
        batches.append(
            ReadBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.is_transactional,
                header.is_control,
            )
        )
        positions.append(position)
        position += header.size
    positions.append(position)
    return batches, positions


def _within(data: Buffer, batches: list[ReadBatch], positions: list[int], acquired: list[AcquiredRange]) -> Buffer:
    """The batches from the first acquired record to the last."""
    first, last = acquired[0].first, acquired[-1].last
    begin = next(index for index, batch in enumerate(batches) if batch.last >= first)
    end = next((index for index, batch in enumerate(batches) if batch.first > last), len(batches))
    if begin == 0 and end == len(batches):
        return data
    return memoryview(data)[positions[begin] : positions[end]]
