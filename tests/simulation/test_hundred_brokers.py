"""A cluster of many brokers, each the real code on a machine of its own: it is spread evenly, heals, and stays one.

Replicas and leaderships are shared out evenly; records are written and read through any broker; several brokers and the
active controller die at once, and what was written stays readable; when all are back, so are the in-sync replicas and
the preferred leaders, and every node has the same metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.simulator import requests
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate

REPLICAS = 3
TOPICS = 5
EVEN = 3  # how many replicas a broker may have more than another
PROPERTIES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}


class ManyBrokers:
    def __init__(self, loop: SimulatedLoop, seed: int, *, brokers: int, partitions: int) -> None:
        self.world = ClusterWorld(loop, seed, controllers=3, brokers=brokers, properties=PROPERTIES)
        self.chance = self.world.chance
        self.topics = [f"topic-{number}" for number in range(TOPICS)]
        self.partitions_a_topic = partitions // TOPICS
        self.written: dict[tuple[str, int], list[bytes]] = {}

    async def run(self) -> None:
        await self.world.start_all()
        for topic in self.topics:
            await self.create(topic)
        await self.world.until(self.is_whole, "all replicas are in sync")
        await self.world.settled()
        self.check_evenness()
        await self.write_some("before")
        await self.lose_some()
        await self.write_some("meanwhile")
        await self.read_back()
        await self.world.start_all()
        await self.world.until(self.is_whole, "all replicas are in sync again")
        await self.world.until(self.preferred_lead, "the preferred leaders lead again")
        await self.write_some("after")
        await self.read_back()
        await self.world.settled()
        self.check_evenness()

    def anybody(self) -> Machine:
        return self.chance.choice([machine for machine in self.world.brokers if machine.is_ready])

    def partitions(self) -> Iterator[Partition]:
        """As some broker knows them."""
        image = self.anybody().image
        for name in self.topics:
            topic = image.topics.by_name(name)
            assert topic is not None
            yield from topic.partitions.values()

    # -- the cluster ------------------------------------------------------------------------------------------------

    async def create(self, name: str) -> None:
        topic = CreatableTopic(name=name, num_partitions=self.partitions_a_topic, replication_factor=REPLICAS)
        async with self.world.client(self.anybody().name) as client:
            (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))).topics
        assert result.error_code == ErrorCode.NONE, result
        await self.world.until(
            lambda: all(machine.image.topics.by_name(name) for machine in self.world.brokers), "everybody knows of it"
        )

    def is_whole(self) -> bool:
        return all(len(each.isr) == REPLICAS and each.leader >= 0 for each in self.partitions())

    def preferred_lead(self) -> bool:
        return all(each.leader == each.replicas[0] for each in self.partitions())

    def check_evenness(self) -> None:
        replicas: Counter[int] = Counter()
        leaders: Counter[int] = Counter()
        for partition in self.partitions():
            replicas.update(partition.replicas)
            leaders.update((partition.leader,))
            assert len(set(partition.replicas)) == REPLICAS
        assert len(replicas) == len(leaders) == len(self.world.brokers)
        assert max(replicas.values()) - min(replicas.values()) <= EVEN, replicas
        assert max(leaders.values()) - min(leaders.values()) <= 1, leaders

    async def lose_some(self) -> None:
        """A few brokers, never all that have a partition, and the active controller."""
        victims = [self.anybody()]
        while len(victims) < max(2, len(self.world.brokers) // 20):
            more = {*victims, self.anybody()}
            lost = {int(machine.properties["node.id"]) for machine in more}
            if all(set(partition.replicas) - lost for partition in self.partitions()):
                victims = sorted(more, key=lambda machine: machine.name)
        for machine in victims:
            machine.crash()
        controller = self.world.active_controller()
        assert controller is not None
        controller.crash()
        lost = {int(machine.properties["node.id"]) for machine in victims}

        def led_by_others() -> bool:
            return all(each.leader >= 0 and each.leader not in lost for each in self.partitions())

        await self.world.until(led_by_others, "others lead what the dead brokers led")
        assert self.world.active_controller() not in (None, controller)
        await self.world.settled()

    # -- clients ----------------------------------------------------------------------------------------------------

    async def leader_of(self, topic: str, index: int) -> str:
        """As any broker tells."""
        async with self.world.client(self.anybody().name) as client:
            answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        assert len(answer.brokers) >= sum(machine.is_ready for machine in self.world.brokers)
        (leader,) = [each.leader_id for each in answer.topics[0].partitions if each.partition_index == index]
        return f"broker-{leader}"

    async def write_some(self, word: str) -> None:
        for topic in self.topics:
            index = self.chance.randrange(self.partitions_a_topic)
            value = f"{word} {topic}-{index}".encode()
            data = requests.batch(value, timestamp=self.anybody().clock.now_ms())
            async with self.world.client(await self.leader_of(topic, index)) as client:
                request = requests.produce_request(topic, data, partition=index, acks=-1)
                answer = requests.only_partition(await client.ask(request, 12))
            assert answer.error_code == ErrorCode.NONE, answer
            self.written.setdefault((topic, index), []).append(value)

    async def read_back(self) -> None:
        for (topic, index), values in self.written.items():
            async with self.world.client(await self.leader_of(topic, index)) as client:
                response = await client.ask(requests.fetch_request(topic, 0, partition=index), 12)
            ((answer,),) = (each.partitions for each in response.responses)
            assert answer.error_code == ErrorCode.NONE, answer
            assert [record.value for record in requests.records(answer.records)] == values


def tell(seed: int, *, brokers: int, partitions: int) -> None:
    quietly()
    simulate(lambda loop: ManyBrokers(loop, seed, brokers=brokers, partitions=partitions).run(), seed)


@pytest.mark.soak
def test_thirty_brokers() -> None:
    tell(1, brokers=30, partitions=300)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_hundred_brokers(seed: int) -> None:
    tell(seed, brokers=100, partitions=1000)
