"""One replicated partition of a simulated cluster, and what tests do to it.

    def story(loop):
        topic = await ReplicatedTopic.create(loop, configs={"min.insync.replicas": "2"})
        await topic.produce("a", "b")
        topic.world.loop.network.isolate(topic.leader.name)
        ...

Three brokers and one controller, on virtual time. Brokers are `broker-1` to `broker-3`; which one leads is looked up.
"""

from __future__ import annotations

from typing import Any

from penstock.broker.partitions.replica import Replica
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.simulator import requests
from penstock.simulator.stories.cluster_world import DATA, ClusterWorld, Machine
from penstock.simulator.twins.loop import SimulatedLoop

TOPIC = "t"
PROPERTIES = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.socket.timeout.ms": "5000",
    "log.cleaner.enable": "false",
}
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


class ReplicatedTopic:
    def __init__(self, world: ClusterWorld) -> None:
        self.world = world

    @classmethod
    async def create(
        cls,
        loop: SimulatedLoop,
        *,
        brokers: int = 3,
        replicas: tuple[int, ...] = (1, 2, 3),
        configs: dict[str, str] | None = None,
        properties: dict[str, str] | None = None,
    ) -> ReplicatedTopic:
        """The topic is there, and all its replicas in sync."""
        world = ClusterWorld(loop, 1, controllers=1, brokers=brokers, properties={**PROPERTIES, **(properties or {})})
        await world.start_all()
        created = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        async with world.client("broker-1") as client:
            (result,) = (await client.ask(CreateTopicsRequest(topics=[created], timeout_ms=10_000))).topics
        assert result.error_code == ErrorCode.NONE, result
        topic = cls(world)
        await topic.in_sync(*replicas)
        return topic

    # -- what there is

    @property
    def partition(self) -> Partition:
        """As the controller has it."""
        controller = self.world.active_controller()
        assert controller is not None
        found = controller.image.topics.partition(TOPIC, 0)
        assert found is not None
        return found

    @property
    def leader(self) -> Machine:
        return self.machine(self.partition.leader)

    @property
    def followers(self) -> list[Machine]:
        return [self.machine(each) for each in self.partition.replicas if each != self.partition.leader]

    def machine(self, broker_id: int) -> Machine:
        return self.world.machines[f"broker-{broker_id}"]

    def replica(self, machine: Machine) -> Replica:
        found = machine.replicas.get(TOPIC, 0)
        assert found is not None
        return found

    def log_path(self, base_offset: int = 0) -> str:
        return f"{DATA}/{TOPIC}-0/{base_offset:020d}.log"

    async def in_sync(self, *broker_ids: int, patience_s: float = 60.0) -> None:
        """Until these are in sync, and no others, as every one of them knows."""

        def is_so() -> bool:
            machines = [self.machine(each) for each in broker_ids]
            found = [each.image.topics.partition(TOPIC, 0) for each in machines if each.is_ready]
            return len(found) == len(broker_ids) and all(
                each is not None and each.leader >= 0 and sorted(each.isr) == sorted(broker_ids) for each in found
            )

        await self.world.until(is_so, f"{broker_ids} are in sync", patience_s)

    async def reassign(self, *broker_ids: int) -> None:
        """Ask for the partition to be on these brokers; it takes as long as it takes."""
        moved = ReassignablePartition(partition_index=0, replicas=list(broker_ids))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[moved])])
        async with self.world.client(self.leader.name) as client:
            answer = await client.ask(request)
        assert answer.error_code == ErrorCode.NONE, answer
        assert all(each.error_code == ErrorCode.NONE for topic in answer.responses for each in topic.partitions), answer

    # -- clients

    async def produce(self, *values: str, acks: int = -1, at: Machine | None = None, **options: Any) -> ErrorCode:
        """One batch; `options` are those of `build_batch`, and `timeout_ms`."""
        machine = at or self.leader
        timeout_ms = options.pop("timeout_ms", 10_000)
        data = requests.batch(*values, timestamp=machine.clock.now_ms(), **options)
        async with self.world.client(machine.name) as client:
            return ErrorCode((await client.produce(TOPIC, data, acks=acks, timeout_ms=timeout_ms)).error_code)

    async def values(self, at: Machine | None = None) -> list[str]:
        """All that a consumer sees."""
        async with self.world.client((at or self.leader).name) as client:
            return [(record.value or b"").decode() for record in await client.read_all(TOPIC)]

    async def alter(self, resource_type: int, resource: str, **configs: str | None) -> None:
        """Set (or delete: None) settings, underscores for dots."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=resource,
                    configs=[
                        AlterableConfig(
                            name=name.replace("_", "."), config_operation=0 if value is not None else 1, value=value
                        )
                        for name, value in configs.items()
                    ],
                )
            ]
        )
        async with self.world.client(self.leader.name) as client:
            (result,) = (await client.ask(request)).responses
        assert result.error_code == ErrorCode.NONE, result
        await self.world.settled()
