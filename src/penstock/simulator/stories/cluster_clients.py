"""Producers and consumers of a simulated cluster: they find leaders, lose them, and repeat unanswered requests."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.produce import PartitionProduceResponse
from penstock.records.batch import CorruptBatch
from penstock.simulator import requests
from penstock.simulator.client import FETCH_VERSION, PRODUCE_VERSION, Client, Lost
from penstock.simulator.stories.cluster_checkers import Promises
from penstock.simulator.stories.cluster_stamps import check_no_time
from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.stories.replica_content import values_of
from penstock.simulator.story import Violation

RETRIABLE = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        # A leader that was replaced, and cannot learn of it, lacks what its successor has appended.
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)  # fmt: skip
EARLIEST = -2
REPAIR_S = 60.0
FINISH_S = 60.0
MANY_REFUSALS = 8
DAMAGED = frozenset((ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR))


class LeaderFound(NamedTuple):
    name: str
    epoch: int


class Clients:
    """What all clients of a story share; `over` ends them when they have no unanswered request."""

    def __init__(
        self, world: ClusterWorld, topic: str, chance: random.Random, events: Counter[str], now_ms: Callable[[], int]
    ) -> None:
        self.world = world
        self.topic = topic
        self.chance = chance
        self.events = events
        self.now_ms = now_ms
        self.over = False
        self.check_answer: Callable[[Promises, PartitionProduceResponse], None] = check_no_time
        self.may_lose_history = False
        """Whether a leader may permanently lack what a producer sent before."""
        self.beginning: Callable[[Promises], int] | None = None
        """Where the logs begin in a topic whose records are deleted; None if none are."""

    async def find_leader(self, promises: Promises) -> LeaderFound | None:
        """The leader, as one of the brokers reports it."""
        name = self.chance.choice([machine.name for machine in self.world.brokers])
        async with self.world.client(name, patience=3.0) as client:
            return (await self.leaders(client)).get(promises.index)

    async def leaders(self, client: Client) -> dict[int, LeaderFound]:
        """The leaders of all partitions that have one."""
        answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]))
        return {
            found.partition_index: LeaderFound(f"broker-{found.leader_id}", found.leader_epoch)
            for topic in answer.topics
            for found in topic.partitions
            if found.leader_id >= 0
        }

    async def produce(self, promises: Promises, name: str) -> None:
        """Batch after batch, each repeated until it is acknowledged."""
        producer = Producer(self, promises, name)
        while not self.over or producer.pending:
            try:
                leader = await self.find_leader(promises)
                if leader is not None:
                    async with self.world.client(leader.name, patience=4.0) as client:
                        is_served = True
                        while is_served and (not self.over or producer.pending):
                            is_served = await producer.send(client)
                            await asyncio.sleep(self.chance.choice((0.0, 0.1, 0.3)))
            except Lost:
                self.events["connections lost"] += 1
            await asyncio.sleep(0.05)

    async def consume(self, promises: Promises) -> None:
        """From the beginning to the end, and further."""
        position = 0
        while not self.over:
            try:
                leader = await self.find_leader(promises)
                if leader is not None:
                    async with self.world.client(leader.name, patience=4.0) as client:
                        while not self.over and (offset := await self._read(client, promises, position)) is not None:
                            position = offset
            except Lost:
                self.events["connections lost"] += 1
            await asyncio.sleep(0.1)

    async def read_through(self, promises: Promises, name: str, begin: Callable[[], int], end: int) -> None:
        """Everything up to `end` from one broker, leader or not, with as many attempts as necessary. The beginning of
        its log may change meanwhile."""
        offset = begin()
        deadline = self.world.loop.time() + REPAIR_S
        while (offset := max(offset, begin())) < end:
            if self.world.loop.time() > deadline:
                raise Violation(
                    "Repair", f"partition {promises.index}: {offset} cannot be read from {name} after {REPAIR_S} s"
                )
            try:
                async with self.world.client(name, patience=4.0) as client:
                    while offset < end and (read := await self._read(client, promises, offset)) is not None:
                        offset = read
            except Lost:
                self.events["connections lost"] += 1
            await asyncio.sleep(0.1)

    async def _read(self, client: Client, promises: Promises, offset: int) -> int | None:
        """The next offset to read; None: use another broker."""
        request = requests.fetch_request(
            self.topic, offset, partition=promises.index, max_wait_ms=200, min_bytes=1, partition_max_bytes=20_000
        )
        response = await client.ask(request, FETCH_VERSION)
        ((answer,),) = (each.partitions for each in response.responses)
        code = ErrorCode(answer.error_code)
        if code in DAMAGED:
            self.events["damage told to consumers"] += 1
            return None
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self.beginning is not None:
            return await self.begin_again(client, promises, offset)
        if code is not ErrorCode.NONE:
            if code not in RETRIABLE:
                raise Violation("Durability", f"partition {promises.index}: fetch at {offset}: {code.name}")
            return None
        try:
            values = list(values_of(answer.records))
        except CorruptBatch as error:
            raise Violation("NeverServedDamaged", f"partition {promises.index}: fetch at {offset}: {error}") from error
        for found, value in values:
            if found >= offset:
                if found != offset:
                    raise Violation("Durability", f"partition {promises.index}: {offset} is missing")
                promises.tell(found, value)
                self.events["read"] += 1
                offset = found + 1
        return offset

    async def begin_again(self, client: Client, promises: Promises, offset: int) -> int | None:
        """Where this broker's log begins, for a reader whose offset it does not have; None: ask another broker."""
        wanted = ListOffsetsPartition(partition_index=promises.index, timestamp=EARLIEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=[wanted])])
        ((answer,),) = (each.partitions for each in (await client.ask(request)).topics)
        if answer.error_code or answer.offset <= offset:
            return None
        if self.beginning is None or answer.offset > self.beginning(promises):
            raise Violation("Durability", f"partition {promises.index}: {offset} is gone, {answer.offset} is the first")
        self.events["beginnings told to readers"] += 1
        begin: int = answer.offset
        return begin


class Producer:
    """Idempotent, acks=all."""

    def __init__(self, clients: Clients, promises: Promises, name: str) -> None:
        self._clients = clients
        self._promises = promises
        self._name = name
        self._producer_id: int | None = None
        self._sequence = 0
        self._run = 0
        self._refusals = 0
        self.pending: list[bytes] = []

    async def send(self, client: Client) -> bool:
        """Sends one batch, the next one or the last one again; False: try another broker."""
        clients = self._clients
        while self._producer_id is None:
            self._producer_id = await client.producer_id()
        if self.pending:
            clients.events["repeated"] += 1
        else:
            numbers = range(self._sequence, self._sequence + clients.chance.randint(1, 3))
            name = self._name + "'" * self._run
            self.pending = [f"{name}:{number}:{'x' * 50}".encode() for number in numbers]
            self._promises.sent.update(self.pending)
        data = requests.batch(
            *self.pending,
            timestamp=clients.now_ms(),
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        request = requests.produce_request(
            clients.topic, data, partition=self._promises.index, acks=-1, timeout_ms=3000
        )
        answer = requests.only_partition(await client.ask(request, PRODUCE_VERSION))
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            clients.events["refused"] += 1
            if code not in RETRIABLE | DAMAGED:
                raise Violation("ExactlyOnce", f"partition {self._promises.index}: {code.name} to a producer")
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and clients.may_lose_history:
                self._refused_again()
            return False
        clients.check_answer(self._promises, answer)
        self._refusals = 0
        for offset, value in enumerate(self.pending, answer.base_offset):
            self._promises.tell(offset, value)
        clients.events["acknowledged"] += len(self.pending)
        self._sequence += len(self.pending)
        self.pending = []
        return True

    def _refused_again(self) -> None:
        """The log has lost what was sent before: after several attempts, continue with a new producer id."""
        self._refusals += 1
        if self._refusals >= MANY_REFUSALS:
            self._clients.events["runs begun"] += 1
            self._run += 1
            self._sequence = self._refusals = 0
            self._producer_id = None
            self.pending = []
