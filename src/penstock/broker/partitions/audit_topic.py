"""The audit log as records of a topic (`penstock.audit.topic`), one JSON object each, keyed by the principal.

Every line of the logger `penstock.audit` that has fields is also an event here. Events wait in a bounded queue, so that
no request ever waits for the topic: if it is full, further events are dropped and counted (their lines are in the log
of the node all the same). One task writes what waits, as one batch at a time: to a partition that this node leads, or
else to the leader of another one, which controllers and brokers reach as they reach it for replication. What could not
be written is tried again; a batch whose answer got lost may be written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.broker.metadata.brokers import Brokers
from penstock.broker.net.peers import PeerFailed
from penstock.broker.partitions.replica import Replica
from penstock.io.clock import Clock
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.records.batch import read_header
from penstock.records.builder import NewRecord, build_batch

AUDIT_LOGGER: Final = logging.getLogger("penstock.audit")
logger = logging.getLogger("penstock.node")

CHANNEL: Final = "audit"
EVENTS_PER_BATCH: Final = 200
RETRY_S: Final = 1.0
REQUEST_S: Final = 10.0
LAST_WORDS_S: Final = 2.0


class AuditPartition(NamedTuple):
    topic_id: Uuid
    partition: int
    leader: int


class AuditTopic(logging.Handler):
    """Created when the node starts; `run` writes until it is cancelled."""

    def __init__(
        self,
        topic: str,
        queued_max: int,
        *,
        node_id: int,
        clock: Clock,
        metadata: Metadata,
        brokers: Brokers,
        replica_of: Callable[[str, int], Replica | None],
        after_append: Callable[[], None],
    ) -> None:
        super().__init__()
        self.dropped = 0
        self._topic = topic
        self._queued_max = queued_max
        self._node_id = node_id
        self._clock = clock
        self._metadata = metadata
        self._brokers = brokers
        self._replica_of = replica_of
        self._after_append = after_append
        self._queue: deque[NewRecord] = deque()
        self._has_events = asyncio.Event()
        self._is_failing = False
        self._writing = asyncio.Lock()
        AUDIT_LOGGER.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """An event; called by the logger, on the event loop."""
        fields = getattr(record, "audit", None)
        if fields is None:
            return
        if len(self._queue) >= self._queued_max:
            self.dropped += 1
            return
        now_ms = self._clock.now_ms()
        event = {"time_ms": now_ms, "node": self._node_id, **fields}
        self._queue.append((now_ms, str(fields["principal"]).encode(), json.dumps(event).encode(), ()))
        self._has_events.set()

    async def run(self) -> None:
        while True:
            await self._has_events.wait()
            async with self._writing:
                is_written = await self._write_some()
            if not is_written:
                await asyncio.sleep(RETRY_S)

    async def finish(self) -> None:
        """Take no more events, and write those that wait, if that does not take long."""
        AUDIT_LOGGER.removeHandler(self)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S), self._writing:
                while self._queue and await self._write_some():
                    pass

    def forget(self) -> None:
        AUDIT_LOGGER.removeHandler(self)

    async def _write_some(self) -> bool:
        """Write the oldest events; False if they have to wait."""
        events = [self._queue[index] for index in range(min(len(self._queue), EVENTS_PER_BATCH))]
        if not events:
            self._has_events.clear()
            return True
        problem = await self._write(build_batch(events))
        if problem is not None:
            if not self._is_failing:
                logger.warning("audit events wait to be written to topic %s: %s", self._topic, problem)
            self._is_failing = True
            return False
        for _ in events:
            self._queue.popleft()
        if self._is_failing:
            logger.warning("audit events are written to topic %s again; %d were dropped", self._topic, self.dropped)
        self._is_failing = False
        return True

    async def _write(self, batch: bytearray) -> str | None:
        """Return why that is not possible now."""
        destination = self._destination()
        if destination is None:
            return "it does not exist, or no partition has a leader"
        if destination.leader == self._node_id:
            return self._append(destination, batch)
        return await self._send(destination, batch)

    def _destination(self) -> AuditPartition | None:
        topic = self._metadata.image.topics.by_name(self._topic)
        if topic is None:
            return None
        led = [(index, each.leader) for index, each in sorted(topic.partitions.items()) if each.leader >= 0]
        own = [index for index, leader in led if leader == self._node_id]
        if own:
            return AuditPartition(topic.topic_id, own[0], self._node_id)
        return AuditPartition(topic.topic_id, *led[self._node_id % len(led)]) if led else None

    def _append(self, destination: AuditPartition, batch: bytearray) -> str | None:
        replica = self._replica_of(self._topic, destination.partition)
        if replica is None:
            return "this node does not lead it yet"
        try:
            replica.append(memoryview(batch), read_header(batch), self._clock.now_ms())
        except KafkaError as error:
            return error.message or error.code.name
        self._after_append()
        return None

    async def _send(self, destination: AuditPartition, batch: bytearray) -> str | None:
        peer = self._brokers.peer(destination.leader, CHANNEL)
        if peer is None:
            return f"the address of broker {destination.leader} is not known"
        request = ProduceRequest(
            acks=1,
            timeout_ms=int(REQUEST_S * 1000),
            topic_data=[
                TopicProduceData(
                    name=self._topic,
                    topic_id=destination.topic_id,
                    partition_data=[PartitionProduceData(index=destination.partition, records=memoryview(batch))],
                )
            ],
        )
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def done(response: ProduceResponse | PeerFailed) -> None:
            if not answer.done():
                answer.set_result(_problem_in(response))

        peer.send(request, done, timeout=REQUEST_S)
        return await answer


def _problem_in(response: ProduceResponse | PeerFailed) -> str | None:
    if isinstance(response, PeerFailed):
        return response.message
    answers: list[Any] = [each for topic in response.responses for each in topic.partition_responses]
    if not answers:
        return "the answer is empty"
    code = ErrorCode(answers[0].error_code)
    return None if code is ErrorCode.NONE else answers[0].error_message or code.name
