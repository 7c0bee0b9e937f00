"""Forwards produce requests to the new leaders while a broker shuts down, so that producers see no error.

A producer learns from an error that a partition has another leader, and then waits before it retries: librdkafka waits
0.1 s after any error. A broker that shuts down avoids the error in these steps:

    hold        produce requests for partitions that other brokers can lead wait here
    drain       the in-sync replicas catch up with everything appended before
    move        only then does the broker ask the controller to move its leaderships: the successors miss nothing, and
                nothing is truncated from this log
    forward     held requests, and those that still arrive, go to the successor, one at a time for each partition; its
                answers go back to the clients
    redirect    answers that are no errors name the successor, as errors do (KIP-951); clients that evaluate this, as
                librdkafka does, switch to it without having seen an error
    leave       when clients send nothing more, or after a time limit: the remaining requests are refused

A client with several requests in flight is not redirected: librdkafka may then wait for a whole second before it
connects to the new leader. Most clients have one request in flight again soon after their requests are no longer held.

Only requests for a single partition are held; librdkafka sends no others. A request for several partitions is served as
before, and refused, with hints, once one of the partitions has moved.

Order is preserved. A request that cannot be held is refused if others of its partition are held, because it would be
appended before them. When a request is refused, so are the later ones of the same connection. Producers without
sequence numbers have no other protection against reordering.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.broker.metadata.brokers import Brokers
from penstock.broker.net.connection import Connection
from penstock.broker.net.peers import Peer, PeerFailed
from penstock.broker.net.request import Request
from penstock.broker.net.server import ConnectionLimits
from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.broker.partitions.replicas import Replicas
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

logger = logging.getLogger("penstock.node")

CHANNEL: Final = "handover"
DRAIN_S: Final = 0.2
HOLD_S: Final = 1.0
QUIET_S: Final = 0.03
FINISH_S: Final = 2.0
CHECK_S: Final = 0.001
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
CALM: Final = 4  # a connection is calm after more than this many requests in a row that were alone in flight
LEADER_HINTS_SINCE: Final = 10

# The successor has not yet replayed the metadata that makes it the leader.
_TOO_EARLY: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class HeldRequest(NamedTuple):
    request: Request
    message: ProduceRequest
    answer: Callable[[Any], None]
    size: int
    deadline: float


class Handover:
    def __init__(
        self,
        *,
        broker_id: int,
        loop: asyncio.AbstractEventLoop,
        metadata: Metadata,
        brokers: Brokers,
        replicas: Replicas,
        limits: ConnectionLimits,
        hints: LeaderHints,
    ) -> None:
        self._broker_id = broker_id
        self._loop = loop
        self._metadata = metadata
        self._brokers = brokers
        self._replicas = replicas
        self._limits = limits
        self._hints = hints
        self.is_on = False
        self._held: dict[TopicPartition, deque[HeldRequest]] = {}
        self._held_bytes = 0
        self.passed_on = 0  # requests that a successor has answered
        self._under_way: set[TopicPartition] = set()
        self._last_taken = 0.0
        self._on_connection: Counter[Connection] = Counter()  # number of held requests
        self._calm: Counter[Connection] = Counter()

    @property
    def is_idle(self) -> bool:
        """Whether no request must be held, or wait behind one that is."""
        return not self.is_on and not self._held

    async def prepare(self) -> None:
        """Hold requests from now on; returns when the in-sync replicas have caught up, or after `DRAIN_S`."""
        self.is_on = True
        deadline = self._loop.time() + DRAIN_S
        led = [leader for replica in self._replicas if (leader := replica.leader) and len(leader.isr) > 1]
        while led and self._loop.time() < deadline:
            await asyncio.sleep(CHECK_S)
            led = [leader for leader in led if leader.high_watermark < leader.log_end]

    async def finish(self) -> None:
        """Returns when clients send (almost) nothing more and all requests are answered."""
        deadline = self._loop.time() + FINISH_S
        while self._held or (self.is_on and self._loop.time() < self._last_taken + QUIET_S):
            if self._loop.time() > deadline:
                self.is_on = False  # requests are refused from now on
            await asyncio.sleep(CHECK_S)

    def take(self, request: Request, message: ProduceRequest, partition: TopicPartition) -> bool:
        """Hold a request for this single partition, for the successor to answer; False if it cannot be held.

        The records of a held request are copied, because they are in the receive buffer.
        """
        replica = self._replicas.get(*partition)
        (topic,) = message.topic_data
        (data,) = topic.partition_data
        if replica is None or not data.records or not self._limits.may_park:
            return False
        if replica.leader is not None and len(replica.leader.isr) == 1:
            return False  # no other replica can lead it
        assert isinstance(data.records, memoryview)
        records = bytes(data.records)
        if self._held_bytes + len(records) > HELD_BYTES_MAX:
            return False
        data.records = records
        topic.name, topic.topic_id = partition.topic, replica.topic_id  # for any version that the successor supports
        self._held_bytes += len(records)
        self._last_taken = self._loop.time()
        self._on_connection[request.connection] += 1
        held = HeldRequest(request, message, request.park(), len(records), self._loop.time() + HOLD_S)
        self._held.setdefault(partition, deque()).append(held)
        self._loop.call_later(HOLD_S, self._go_on, partition)
        self._go_on(partition)
        return True

    def holds(self, topic: str, partition: int) -> bool:
        """Whether requests for this partition are held; later ones must not overtake them."""
        return bool(self._held) and TopicPartition(topic, partition) in self._held

    def committed(self) -> None:
        """The metadata changed."""
        for partition in list(self._held):
            self._go_on(partition)

    # -- forwarding -------------------------------------------------------------------------------------------------

    def _go_on(self, partition: TopicPartition) -> None:
        """Forward the first held request if the successor is known; one at a time, because order matters."""
        waiting = self._held.get(partition)
        if not waiting or partition in self._under_way:
            return
        held = waiting[0]
        left = held.deadline - self._loop.time()
        peer = self._successor(partition)
        if left <= 0:
            self.is_on = False  # this takes too long: further requests are served as before
            self._refuse(partition, held, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._go_on(partition)
        elif peer is not None:
            self._under_way.add(partition)
            peer.send(held.message, lambda outcome: self._answered(partition, held, outcome), timeout=left)

    def _again(self, partition: TopicPartition) -> None:
        self._under_way.discard(partition)
        self._go_on(partition)

    def _successor(self, partition: TopicPartition) -> Peer | None:
        known = self._metadata.image.topics.partition(*partition)
        if known is None or known.leader == self._broker_id:
            return None
        return self._brokers.peer(known.leader, CHANNEL)

    def _answered(self, partition: TopicPartition, held: HeldRequest, outcome: ProduceResponse | PeerFailed) -> None:
        waiting = self._held.get(partition)
        if waiting and waiting[0] is held:
            if isinstance(outcome, PeerFailed):
                # Unless the connection was refused, the records may have been appended.
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER if outcome.refused else ErrorCode.REQUEST_TIMED_OUT
                self._refuse(partition, held, code)
            else:
                answer = outcome.responses[0].partition_responses[0]
                if answer.error_code in _TOO_EARLY and self._loop.time() < held.deadline:
                    self._loop.call_later(CHECK_S, self._again, partition)
                    return
                self.passed_on += 1
                self._answer(partition, held, answer)
        self._again(partition)

    def _refuse(self, partition: TopicPartition, held: HeldRequest, code: ErrorCode) -> None:
        """Refuse the first held request and the later ones of the same connection."""
        connection = held.request.connection
        self._refuse_one(partition, held, code)
        for later in [each for each in self._held.get(partition, ()) if each.request.connection is connection]:
            self._refuse_one(partition, later, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _refuse_one(self, partition: TopicPartition, held: HeldRequest, code: ErrorCode) -> None:
        error = KafkaError(code)
        answer = PartitionProduceResponse(
            index=partition.partition, base_offset=-1, error_code=code, error_message=error.message
        )
        self._answer(partition, held, answer)

    def _answer(self, partition: TopicPartition, held: HeldRequest, answer: PartitionProduceResponse) -> None:
        waiting = self._held[partition]
        waiting.remove(held)
        if not waiting:
            del self._held[partition]
        self._held_bytes -= held.size
        (asked,) = held.message.topic_data
        topic = TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=[answer])
        response = ProduceResponse(responses=[topic])
        answer.current_leader = None
        if self._is_calm(held.request.connection) and held.request.version >= LEADER_HINTS_SINCE:
            self._tell_successor(partition, held, answer, response)
        held.answer(response)

    def _is_calm(self, connection: Connection) -> bool:
        """Whether the client seems to have nothing else in flight. Called once for each request being answered."""
        self._on_connection[connection] -= 1
        if self._on_connection[connection]:
            self._calm[connection] = 0
            return False
        del self._on_connection[connection]
        self._calm[connection] += 1
        return self._calm[connection] > CALM

    def _tell_successor(
        self, partition: TopicPartition, held: HeldRequest, answer: PartitionProduceResponse, response: ProduceResponse
    ) -> None:
        hint = self._hints.current_leader(held.request.connection, *partition)
        if hint is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
            response.node_endpoints = [
                NodeEndpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
            ]
