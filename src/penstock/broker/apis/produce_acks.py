"""Acknowledgements of plain produce requests that wait until their records are committed, or flushed.

The replies are made when the records are appended, and leave when the high watermark has passed them (with acks=1, when
they are flushed). Requests that were appended together are acknowledged together. Only if something goes wrong (the
leadership ends, too few replicas stay in sync, time is over), each request gets the answer that it would get alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.apis.produce import fail, refuse
from penstock.broker.apis.services import ProduceServices
from penstock.broker.net.connection import Connection, PendingReply
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.frames import response_parts
from penstock.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from penstock.protocol.primitives import Part
from penstock.replication.partition import LeaderState

if TYPE_CHECKING:
    from penstock.broker.apis.produce_plain import Target


Answered = tuple[int, int, bytes]
"""A request whose records are in the log: its correlation id, the offset after its records, its reply."""


class Acknowledgement(PendingReply):
    """The place of appended requests in the queue of replies."""

    __slots__ = ("_answered", "_leader", "_log_start_offset", "_services", "_target")

    def __init__(
        self,
        services: ProduceServices,
        connection: Connection,
        target: Target,
        leader: LeaderState,
        answered: list[Answered],
        log_start_offset: int,
    ) -> None:
        connection.latency = connection.listener.plain_latency
        super().__init__(connection, len(answered))
        self._services = services
        self._target = target
        self._leader = leader
        self._answered = answered
        self._log_start_offset = log_start_offset
        connection.park_until(self, services.loop.time() + target.timeout_s)
        wait = leader.wait_for if target.wants_all else leader.wait_for_flush
        _, end, _ = answered[-1]
        wait(end, self.settled)

    def settled(self, code: ErrorCode) -> None:
        if self.parts is not None:
            return  # the producer already got a timeout
        if code == ErrorCode.NONE:
            self.complete([reply for _, _, reply in self._answered])
        elif self.is_wanted:
            self._refuse(code)

    def expire(self) -> None:
        """The records are in the log, but not committed or flushed in time: REQUEST_TIMED_OUT, as in Kafka."""
        self._refuse(ErrorCode.REQUEST_TIMED_OUT)

    def _refuse(self, code: ErrorCode) -> None:
        target, leader = self._target, self._leader
        # The leader may have gone on in another epoch since, with another state.
        reached = max(leader.high_watermark, target.replica.high_watermark) if target.wants_all else leader.flushed
        parts: list[Part] = []
        for correlation_id, end, reply in self._answered:
            if end <= reached:
                parts.append(reply)
            else:
                parts += self._refusal(correlation_id, code)
        self.complete(parts)

    def _refusal(self, correlation_id: int, code: ErrorCode) -> list[Part]:
        target = self._target
        answer = PartitionProduceResponse(index=target.index, log_start_offset=self._log_start_offset)
        topic = TopicProduceResponse(name=target.topic, topic_id=target.topic_id, partition_responses=[answer])
        response = ProduceResponse(responses=[topic])
        if code == ErrorCode.REQUEST_TIMED_OUT:
            refuse(answer, KafkaError(code))
        else:
            fail(self._services, self._connection, target.version, response, target.topic, answer, KafkaError(code))
        parts: list[Part] = []
        response_parts(ApiKey.PRODUCE, target.version, correlation_id, response, parts)
        return parts
