"""A replicated topic under faults: the real broker code, three or more brokers, on virtual time.

Producers write idempotently with acks=all and repeat what was not answered; consumers read on as they would anywhere.
Meanwhile brokers and controllers are killed, stopped, lose their power, are cut off or come back with an empty disk.

Checked while it runs: what a consumer has read, or a producer was told, never changes (`CommittedStays`); a leader's
high watermark does not go back (`MonotonicHighWatermark`); one leader in an epoch (`OneLeaderPerEpoch`). In the end,
with everybody back: all replicas are in sync and byte for byte the same (`ReplicasAreEqual`), with everything that was
promised in them, per producer in order and once (`ExactlyOnce`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from penstock.broker.replica import Replica
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.records.batch import iterate_headers
from penstock.records.record import iterate_records
from penstock.testing import requests
from penstock.testing.simulated_loop import SimulatedLoop
from penstock.testing.simulation.client import Client, Lost
from penstock.testing.simulation.cluster_world import ClusterWorld, Machine
from penstock.testing.simulation.program import play_on_loop
from penstock.testing.simulation.story import Outcome

TOPIC = "t"
ROUNDS = 5
EVENTS = (
    "acknowledged", "repeated", "read", "killed", "stopped", "power lost", "disk lost", "isolated",
    "controller killed", "elected", "in sync again",
)  # fmt: skip

RETRIABLE = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        # A leader that has been succeeded, and cannot hear of it, misses what its successor has taken.
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)  # fmt: skip

PROPERTIES = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.fetch.max.bytes": "3000",
    "replica.socket.timeout.ms": "5000",
    "auto.create.topics.enable": "false",
}


class Promises:
    """What was said about one partition."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.told: dict[int, bytes] = {}
        self.sent: set[bytes] = set()

    def tell(self, offset: int, value: bytes) -> None:
        known = self.told.setdefault(offset, value)
        assert known == value, f"CommittedStays: partition {self.index}: {offset} was {known!r} and is {value!r}"


class ClusterStory:
    def __init__(self, loop: SimulatedLoop, seed: int, *, rounds: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed}/replication cluster")
        self.rounds = rounds
        self.events: Counter[str] = Counter()
        self.controllers = self.chance.choice((1, 3))
        brokers = self.chance.choice((3, 3, 4))
        self.world = ClusterWorld(loop, seed, controllers=self.controllers, brokers=brokers, properties=PROPERTIES)
        self.flushes = self.chance.random() < 0.4
        self.partitions = [Promises(index) for index in range(2)]
        self.over = False
        self.watermarks: dict[tuple[str, int, int, int], int] = {}
        self.leaders: dict[tuple[int, int], str] = {}

    async def run(self) -> None:
        await self.world.start_all()
        await self.create()
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self.watch())
            for partition in self.partitions:
                for number in range(2):
                    tasks.create_task(self.produce(partition, f"p{number}"))
                tasks.create_task(self.consume(partition))
            for _ in range(self.rounds):
                await asyncio.sleep(self.chance.choice((0.05, 0.5, 2.0)) * self.chance.random())
                await self.misfortune()
            await self.everybody_back()
            self.over = True
            watching.cancel()
        await self.check_replicas()

    async def create(self) -> None:
        configs = {"min.insync.replicas": "2", **({"flush.messages": "1"} if self.flushes else {})}
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=len(self.partitions),
            replication_factor=3,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        async with self.world.client("broker-1") as client:
            (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
        assert result.error_code == ErrorCode.NONE, result

    # -- clients ----------------------------------------------------------------------------------------------------

    async def leader_of(self, partition: Promises) -> str | None:
        """As one of the brokers says."""
        name = self.chance.choice([machine.name for machine in self.world.brokers])
        async with self.world.client(name, patience=3.0) as client:
            answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
        for topic in answer.topics:
            for found in topic.partitions:
                if found.partition_index == partition.index and found.leader_id >= 0:
                    return f"broker-{found.leader_id}"
        return None

    async def produce(self, partition: Promises, name: str) -> None:
        """Batch after batch, each repeated until it is answered for."""
        producer = Producer(self, partition, name)
        while not self.over or producer.pending:
            try:
                leader = await self.leader_of(partition)
                if leader is not None:
                    async with self.world.client(leader, patience=4.0) as client:
                        is_served = True
                        while is_served and (not self.over or producer.pending):
                            is_served = await producer.send(client)
                            await asyncio.sleep(self.chance.choice((0.0, 0.01, 0.1)))
            except Lost:
                pass
            await asyncio.sleep(0.05)

    async def consume(self, partition: Promises) -> None:
        offset: int | None = 0
        position = 0
        while not self.over:
            try:
                leader = await self.leader_of(partition)
                if leader is not None:
                    async with self.world.client(leader, patience=4.0) as client:
                        while not self.over and (offset := await self.read(client, partition, position)) is not None:
                            position = offset
            except Lost:
                pass
            await asyncio.sleep(0.1)

    async def read(self, client: Client, partition: Promises, offset: int) -> int | None:
        """Where to read on; None: elsewhere."""
        request = requests.fetch_request(TOPIC, offset, partition=partition.index, max_wait_ms=200, min_bytes=1)
        response = await client.ask(request, 12)
        ((answer,),) = (each.partitions for each in response.responses)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            assert code in RETRIABLE, f"CommittedStays: partition {partition.index}: fetch at {offset}: {code.name}"
            return None
        for found, value in values_of(answer.records):
            if found >= offset:
                assert found == offset, f"CommittedStays: partition {partition.index}: {offset} is missing"
                partition.tell(found, value)
                self.events["read"] += 1
                offset = found + 1
        return offset

    # -- misfortunes ------------------------------------------------------------------------------------------------

    async def misfortune(self) -> None:
        machine = self.chance.choice(self.world.brokers)
        what = self.chance.choice(
            (self.kill, self.kill, self.stop, self.lose_power, self.lose_disk, self.isolate, self.kill_controller)
        )
        if self.chance.random() < 0.25:
            self.world.loop.network.heal()
            self.start_all()
        elif not machine.runs:
            machine.start()
        else:
            await what(machine)

    async def kill(self, machine: Machine) -> None:
        self.events["killed"] += 1
        machine.crash()

    async def stop(self, machine: Machine) -> None:
        if machine.is_ready:
            self.events["stopped"] += 1
            await machine.stop()

    async def lose_power(self, machine: Machine) -> None:
        """On topics that do not flush, one at a time: the others may not go before what was lost is copied again."""
        if not self.flushes:
            await self.everybody_back()
        self.events["power lost"] += 1
        machine.power_loss()
        if not self.flushes:
            await self.everybody_back()

    async def lose_disk(self, machine: Machine) -> None:
        await self.everybody_back()
        self.events["disk lost"] += 1
        machine.crash()
        machine.lose_disk()
        await self.everybody_back()

    async def isolate(self, machine: Machine) -> None:
        self.events["isolated"] += 1
        self.world.loop.network.isolate(machine.name)
        await asyncio.sleep(self.chance.choice((0.5, 6.0)) * self.chance.random())

    async def kill_controller(self, _: Machine) -> None:
        active = self.world.active_controller()
        if active is not None and self.controllers > 1:
            self.events["controller killed"] += 1
            active.crash()
            await asyncio.sleep(self.chance.random())
            active.start()

    def start_all(self) -> None:
        for machine in self.world.machines.values():
            if not machine.runs:
                machine.start()

    async def everybody_back(self) -> None:
        self.world.loop.network.heal()
        self.start_all()
        await self.world.until(self.all_in_sync, "all replicas are in sync")
        self.events["in sync again"] += 1

    def all_in_sync(self) -> bool:
        if not all(machine.is_ready for machine in self.world.machines.values()):
            return False
        found = [
            machine.image.topics.partition(TOPIC, partition.index)
            for machine in self.world.brokers
            for partition in self.partitions
        ]
        return all(each is not None and len(each.isr) == 3 and each.leader >= 0 for each in found)

    # -- checks -----------------------------------------------------------------------------------------------------

    def replicas(self, partition: Promises) -> dict[str, Replica]:
        nodes = {machine.name: machine.node for machine in self.world.brokers if machine.node is not None}
        found = {name: node.replicas.get(TOPIC, partition.index) for name, node in nodes.items()}
        return {name: replica for name, replica in found.items() if replica is not None}

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            for partition in self.partitions:
                for name, replica in self.replicas(partition).items():
                    if replica.leader is not None:
                        self.check_leader(name, (partition.index, replica.leader.leader_epoch), replica.high_watermark)

    def check_leader(self, name: str, epoch: tuple[int, int], high_watermark: int) -> None:
        if epoch not in self.leaders:
            self.events["elected"] += 1
        former = self.leaders.setdefault(epoch, name)
        assert former == name, f"OneLeaderPerEpoch: {former} and {name} in {epoch}"
        key = (name, self.world.machines[name].starts, *epoch)
        before = self.watermarks.get(key, 0)
        assert high_watermark >= before, f"MonotonicHighWatermark: {name} in {epoch}: {before} to {high_watermark}"
        self.watermarks[key] = high_watermark

    async def check_replicas(self) -> None:
        def agree() -> bool:
            return all(
                len({(each.log.log_end_offset, each.high_watermark) for each in self.replicas(partition).values()}) == 1
                for partition in self.partitions
            )

        await self.world.until(agree, "all replicas know the same to be committed")
        for partition in self.partitions:
            contents = {content(replica) for replica in self.replicas(partition).values()}
            assert len(contents) == 1, f"ReplicasAreEqual: partition {partition.index}"
            self.check_content(partition, contents.pop())

    @staticmethod
    def check_content(partition: Promises, data: bytes) -> None:
        last: dict[bytes, int] = {}
        found = values_of(data)
        for offset, value in found:
            assert value in partition.sent, f"nobody sent {value!r}"
            partition.tell(offset, value)
            producer, number, _ = value.split(b":", 2)
            assert int(number) == last.get(producer, -1) + 1, (
                f"ExactlyOnce: partition {partition.index}: {value[:20]!r} at {offset} after {last.get(producer)}"
            )
            last[producer] = int(number)
        missing = sorted(partition.told.keys() - {offset for offset, _ in found})
        assert not missing, f"CommittedStays: partition {partition.index}: {missing[:5]} are missing"


class Producer:
    def __init__(self, story: ClusterStory, partition: Promises, name: str) -> None:
        self.story = story
        self.partition = partition
        self.name = name
        self.producer_id: int | None = None
        self.sequence = 0
        self.pending: list[bytes] = []

    async def send(self, client: Client) -> bool:
        """One batch, the next or the last again; false: try elsewhere."""
        story = self.story
        while self.producer_id is None:
            self.producer_id = await client.producer_id()
        if self.pending:
            story.events["repeated"] += 1
        else:
            count = story.chance.randint(1, 3)
            self.pending = [f"{self.name}:{self.sequence + each}:{'x' * 50}".encode() for each in range(count)]
            self.partition.sent.update(self.pending)
        data = requests.batch(
            *self.pending,
            timestamp=story.world.brokers[0].clock.now_ms(),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        request = requests.produce_request(TOPIC, data, partition=self.partition.index, acks=-1, timeout_ms=3000)
        answer = requests.only_partition(await client.ask(request, 12))
        code = ErrorCode(answer.error_code)
        story.events[f"produce: {code.name}"] += 1
        if code is not ErrorCode.NONE:
            assert code in RETRIABLE, f"seed {story.seed}: {code.name}"
            return False
        for offset, value in enumerate(self.pending, answer.base_offset):
            self.partition.tell(offset, value)
        story.events["acknowledged"] += len(self.pending)
        self.sequence += len(self.pending)
        self.pending = []
        return True


def content(replica: Replica) -> bytes:
    log = replica.log
    offset, parts = log.log_start_offset, []
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20, log.log_end_offset).data)
        parts.append(data)
        for _, header in iterate_headers(data):
            offset = header.next_offset
    return b"".join(parts)


def values_of(data: Any) -> list[tuple[int, bytes]]:
    return [
        (record.offset, record.value or b"")
        for position, header in iterate_headers(data)
        for record in iterate_records(data, position, header, max_size=1 << 20)
    ]


def play(seed: int, rounds: int = ROUNDS) -> Outcome:
    return play_on_loop(seed, lambda loop: ClusterStory(loop, seed, rounds=rounds))
