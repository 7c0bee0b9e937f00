"""Produce: appends one batch to each named partition.

Versions 3-13: 7 allows zstd, 8 adds errors by record, 10 the current leader in errors, 13 topic ids.

A plain batch is checked, gets its offset and is written directly from the receive buffer. acks=1 is answered at once
(on a topic that flushes every message, when it is flushed), acks=all when the high watermark has passed it, acks=0
never. With acks=all nothing is appended while fewer replicas than `min.insync.replicas` are in sync; if that happens
while a producer waits, it gets an error that says that its records are in the log and may or may not stay there.

The receive buffer is shared between connections, so data that must outlive the call is copied. A batch whose records
must be decoded is copied and passed to a thread. The connection is muted meanwhile, so that later requests of the same
producer cannot overtake it. The same applies to the first batch of a transaction in a partition, while the coordinator
checks that the partition is in the transaction (before version 12), or adds it. A request that waits only for a flush
or for acks=all does not mute the connection, so a pipelining producer keeps the disk busy.

Verification is part of the append: the first batch of a transaction in a partition carries its `Verification`, taken
when the batch arrived. The log refuses the batch if a marker has voided the verification meanwhile, however long the
batch waited or was being rewritten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.broker.apis.services import ProduceServices
from penstock.broker.net.connection import Connection, PendingReply
from penstock.broker.net.request import Request
from penstock.broker.partitions.replica import Replica
from penstock.log.log import Appended
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.model.topics import INTERNAL_TOPICS
from penstock.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.records.batch import BatchHeader, read_header
from penstock.records.validation import InvalidRecords, rewrite_produced, validate_produce
from penstock.replication.verification import Verification
from penstock.security.authorizer import Operation, topic_resource, transactional_id_resource
from penstock.transactions.partition_verification import produce_error, produce_support

VERSIONS = (3, 13)

NO_ACKS = 0
ALL_ACKS = -1
ANY_EPOCH = -1
TOPIC_IDS_SINCE = 13
LEADER_HINTS_SINCE = 10
ADMIN_CLIENT = "__admin_client"  # the only client that may write to internal topics, as in Kafka

logger = logging.getLogger("penstock.produce")


def handle(services: ProduceServices, request: Request, message: ProduceRequest) -> ProduceResponse | None:
    return Produce(services, request, message).start()


class Unverified(NamedTuple):
    """The first batch of a transaction in a partition, while the coordinator verifies it."""

    replica: Replica
    batch: bytearray
    header: BatchHeader
    must_be_rewritten: bool
    answer: PartitionProduceResponse
    verification: Verification


class Produce:
    """One produce request, from its arrival to its response."""

    __slots__ = (
        "_acks", "_deadline", "_message", "_now_ms", "_pending", "_reply", "_request", "_response", "_rewriting",
        "_services", "_unverified",
    )  # fmt: skip

    def __init__(self, services: ProduceServices, request: Request, message: ProduceRequest) -> None:
        self._services = services
        self._request = request
        self._message = message
        self._acks = message.acks
        self._now_ms = services.clock.now_ms()
        self._response = ProduceResponse()
        # Answers that are not final yet, by identity: their records are being rewritten, committed or flushed.
        self._pending: dict[int, PartitionProduceResponse] = {}
        self._rewriting = 0
        self._unverified: list[Unverified] = []
        self._reply: PendingReply | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def start(self) -> ProduceResponse | None:
        if self._services.handover.is_on and self._is_handed_over():
            return None
        may_transact = self._may_transact()
        for topic in self._message.topic_data:
            name, refusal = self._admit(topic)
            if not may_transact:
                refusal = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            result = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            self._response.responses.append(result)
            for partition in topic.partition_data:
                answer = PartitionProduceResponse(index=partition.index, base_offset=-1)
                result.partition_responses.append(answer)
                if refusal is not None:
                    refuse(answer, refusal)
                    continue
                try:
                    self._append(name, partition, answer)
                except KafkaError as error:
                    self._failed(name, answer, error)
        if self._pending:
            self._park()
            if self._unverified:
                self._verify()
            return None
        if self._acks == NO_ACKS:
            self._check_unanswered()
            return None
        return self._response

    def _may_transact(self) -> bool:
        """Whether the client may use its transactional id. As in Kafka, only transactional records need that."""
        transactional_id = self._message.transactional_id
        if transactional_id is None or not any(
            _is_transactional(partition.records)
            for topic in self._message.topic_data
            for partition in topic.partition_data
        ):
            return True
        return self._request.may(Operation.WRITE, transactional_id_resource(transactional_id))

    def _is_handed_over(self) -> bool:
        """Whether this broker is shutting down and has passed the request to another one."""
        message = self._message
        if self._acks == NO_ACKS or len(message.topic_data) != 1 or message.transactional_id is not None:
            return False
        (topic,) = self._message.topic_data
        if len(topic.partition_data) != 1:
            return False
        name, refusal = self._admit(topic)
        partition = TopicPartition(name, topic.partition_data[0].index)
        return refusal is None and self._services.handover.take(self._request, self._message, partition)

    def _admit(self, topic: TopicProduceData) -> tuple[str, KafkaError | None]:
        """The topic's name, and the error if the client may not write to it."""
        name: str | None = topic.name
        if self._request.version >= TOPIC_IDS_SINCE:
            name = self._services.hints.topic_name(topic.topic_id)
            if name is None:
                return "", KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        assert name is not None
        if not self._request.may(Operation.WRITE, topic_resource(name)):
            return name, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._acks not in (NO_ACKS, 1, ALL_ACKS):
            return name, KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if name in INTERNAL_TOPICS and self._request.client_id != ADMIN_CLIENT:
            return name, KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by coordinators only")
        return name, None

    def _append(self, topic: str, partition: PartitionProduceData, answer: PartitionProduceResponse) -> None:
        replica = self._services.replicas.get(topic, partition.index)
        if replica is None:
            raise self._services.hints.not_here(topic, partition.index)
        if self._services.handover.holds(topic, partition.index):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        batch = partition.records
        if not batch:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch a request, not none")
        assert isinstance(batch, memoryview)
        header = read_header(batch)
        if header.is_transactional and self._message.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        self._check_replicas(replica, header)
        settings = replica.log.settings
        checked = validate_produce(batch, header, settings, self._now_ms, api_version=self._request.version)
        if settings.checks_schemas:
            checked = None  # that needs the records, too, and perhaps the registry
        verification = None
        if header.is_transactional:
            verification = self._begin_verification(replica, header)
            if verification is not None and self._must_ask and not self._is_known(replica, header):
                entry = Unverified(replica, bytearray(batch), header, checked is None, answer, verification)
                self._unverified.append(entry)
                self._pending[id(answer)] = answer
                return
        if checked is None:
            self._rewrite(replica, bytearray(batch), header, answer, verification)
        else:
            appended = replica.append(batch, checked, self._now_ms, verification=verification)
            self._appended(replica, appended, answer)

    def _check_replicas(self, replica: Replica, header: BatchHeader) -> None:
        leader = replica.leader_of(ANY_EPOCH)
        if self._acks == ALL_ACKS and not leader.has_enough_replicas:
            replica.log.producers.refuse(header, ErrorCode.NOT_ENOUGH_REPLICAS, self._now_ms)
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(leader.isr)} replicas of {replica.topic_partition} are in sync, {leader.min_isr} must be "
                "(min.insync.replicas)",
            )

    def _appended(self, replica: Replica, appended: Appended, answer: PartitionProduceResponse) -> None:
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = appended.log_start_offset
        leader = replica.leader
        if self._acks == NO_ACKS or leader is None:
            return
        end = appended.last_offset + 1
        if self._acks == ALL_ACKS:
            if end > leader.high_watermark:
                self._pending[id(answer)] = answer
                leader.wait_for(end, lambda code: self._committed(replica, answer, code))
        elif leader.counts_flushed and end > leader.flushed:
            self._pending[id(answer)] = answer
            leader.wait_for_flush(end, lambda code: self._committed(replica, answer, code))

    # -- transactions -----------------------------------------------------------------------------------------------

    def _begin_verification(self, replica: Replica, header: BatchHeader) -> Verification | None:
        """The verification that this batch carries when it is appended; None if its transaction is open here."""
        version = produce_support(self._request.version).transaction_version
        return replica.log.producers.begin_verification(header, self._now_ms, transaction_version=version)

    @property
    def _must_ask(self) -> bool:
        """Whether to ask the coordinator. Even if it is not asked, a marker voids the verification."""
        return self._services.verification.must_ask(adds=produce_support(self._request.version).adds)

    def _is_known(self, replica: Replica, header: BatchHeader) -> bool:
        """Whether the coordinator is on this broker, and already has the partition in the transaction."""
        transactional_id = self._message.transactional_id
        assert transactional_id is not None
        return self._services.verification.is_known(
            transactional_id, header.producer_id, header.producer_epoch, replica.topic_partition
        )

    def _verify(self) -> None:
        transactional_id = self._message.transactional_id
        assert transactional_id is not None
        unverified, self._unverified = self._unverified, []
        self._rewriting += 1  # keeps the connection muted while the coordinator is asked
        by_producer: dict[tuple[int, int], list[Unverified]] = {}
        for entry in unverified:
            by_producer.setdefault((entry.header.producer_id, entry.header.producer_epoch), []).append(entry)
        if len(by_producer) > 1:
            self._verified(unverified, {}, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return
        ((producer, entries),) = by_producer.items()
        self._services.verification.ask(
            transactional_id,
            *producer,
            [entry.replica.topic_partition for entry in entries],
            adds=produce_support(self._request.version).adds,
            done=lambda errors: self._verified(entries, errors),
        )

    def _verified(
        self,
        entries: list[Unverified],
        errors: Mapping[TopicPartition, ErrorCode],
        missing: ErrorCode = ErrorCode.NETWORK_EXCEPTION,
    ) -> None:
        self._rewriting -= 1
        for entry in entries:
            del self._pending[id(entry.answer)]
            try:
                self._append_verified(entry, errors.get(entry.replica.topic_partition, missing))
            except KafkaError as error:
                self._failed(entry.replica.topic_partition.topic, entry.answer, error)
        if self._pending and not self._rewriting:
            self._set_deadline()
        self._finish_if_complete()
        self._services.wakeups.run()

    def _append_verified(self, entry: Unverified, code: ErrorCode) -> None:
        replica, verification = entry.replica, entry.verification
        if code != ErrorCode.NONE:
            code_for_client = produce_error(code, produce_support(self._request.version))
            raise KafkaError(code_for_client, f"the transaction coordinator says {code.name}")
        self._check_replicas(replica, entry.header)
        if entry.must_be_rewritten:
            self._rewrite(replica, entry.batch, entry.header, entry.answer, verification)
            return
        header = read_header(entry.batch)
        appended = replica.append(memoryview(entry.batch), header, self._now_ms, verification=verification)
        self._appended(replica, appended, entry.answer)

    # -- slow paths -------------------------------------------------------------------------------------------------

    def _rewrite(
        self,
        replica: Replica,
        batch: bytearray,
        header: BatchHeader,
        answer: PartitionProduceResponse,
        verification: Verification | None,
    ) -> None:
        """Decode, check and rewrite the records on a thread, then append the result."""
        self._pending[id(answer)] = answer
        self._rewriting += 1
        services = self._services
        settings = replica.log.settings
        limit = self._request.connection.listener.request_bytes_max
        topic = replica.topic_partition.topic

        def rewrite() -> bytearray:
            if settings.checks_schemas:
                services.schemas.check(topic, batch, header, settings, max_size=limit)
            return rewrite_produced(batch, header, settings, self._now_ms, max_size=limit)

        executor = services.schemas.executor if settings.checks_schemas else None
        future = services.loop.run_in_executor(executor, rewrite)

        def done(future: asyncio.Future[bytearray]) -> None:
            self._rewriting -= 1
            if future.cancelled():
                return
            del self._pending[id(answer)]
            try:
                rewritten = future.result()
                header = read_header(rewritten)
                self._check_replicas(replica, header)
                appended = replica.append(memoryview(rewritten), header, self._now_ms, verification=verification)
                self._appended(replica, appended, answer)
            except KafkaError as error:
                self._failed(replica.topic_partition.topic, answer, error)
            except Exception:  # a bug of ours; the connection is muted until there is an answer
                logger.exception("a batch for %s could not be rewritten", replica.topic_partition)
                refuse(answer, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._finish_if_complete()
            services.wakeups.run()

        future.add_done_callback(done)

    def _committed(self, replica: Replica, answer: PartitionProduceResponse, code: ErrorCode) -> None:
        if self._pending.pop(id(answer), None) is None:
            return  # the producer already got a timeout
        if code != ErrorCode.NONE:
            self._failed(replica.topic_partition.topic, answer, KafkaError(code))
        self._finish_if_complete()

    def _park(self) -> None:
        is_incomplete = self._rewriting > 0 or bool(self._unverified)
        self._reply = self._request.connection.park(mute=is_incomplete)
        if not is_incomplete:
            self._set_deadline()

    def _set_deadline(self) -> None:
        self._deadline = self._services.loop.call_later(max(0, self._message.timeout_ms) / 1000, self._expire)

    def _expire(self) -> None:
        """The records are in the log, but not committed or flushed in time: REQUEST_TIMED_OUT, as in Kafka."""
        for answer in self._pending.values():
            refuse(answer, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        self._pending.clear()
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        if self._pending or self._reply is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        reply, self._reply = self._reply, None
        if self._acks == NO_ACKS:
            self._check_unanswered()
            reply.complete([])
        elif reply.is_wanted:
            self._request.settle(self._response)
            reply.complete(self._request.parts(self._response))

    def _failed(self, topic: str, answer: PartitionProduceResponse, error: KafkaError) -> None:
        request = self._request
        fail(self._services, request.connection, request.version, self._response, topic, answer, error)

    def _check_unanswered(self) -> None:
        """With acks=0 a closed connection is the only way to report an error to the producer."""
        for topic in self._response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    logger.warning(
                        "closing %s: %s for an unacknowledged write to %s-%d",
                        self._request.connection.peer_host,
                        ErrorCode(answer.error_code).name,
                        topic.name,
                        answer.index,
                    )
                    self._request.connection.close()
                    return


def fail(
    services: ProduceServices,
    connection: Connection,
    version: int,
    response: ProduceResponse,
    topic: str,
    answer: PartitionProduceResponse,
    error: KafkaError,
) -> None:
    """Turn an answer of this response into an error."""
    refuse(answer, error)
    answer.error_code = services.hints.checked(error.code)
    if version >= LEADER_HINTS_SINCE:
        hint = services.hints.hint(connection, topic, answer.index, answer.error_code)
        if hint is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            if all(endpoint.node_id != hint.leader_id for endpoint in response.node_endpoints):
                response.node_endpoints.append(
                    NodeEndpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
                )
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
    if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
        logger.error("cannot append to %s-%d: %s", topic, answer.index, error.message)


def _is_transactional(records: Any) -> bool:
    try:
        return bool(records) and read_header(records).is_transactional
    except KafkaError:
        return False  # refused when it is appended


def refuse(answer: PartitionProduceResponse, error: KafkaError) -> None:
    answer.base_offset = -1
    answer.error_code = error.code
    answer.error_message = error.detail
