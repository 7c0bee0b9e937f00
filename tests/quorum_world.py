"""A metadata quorum on a simulated loop and disk: started, killed, powered off and started again."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.metadata.formatting import NodeIdentity, format_or_load
from penstock.broker.metadata.quorum import MetadataQuorum, Operation
from penstock.broker.net.peers import Peers
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.snapshot import SnapshotId
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.simulator.stories.controller_world import node_settings, registration
from penstock.simulator.twins.clock import SimulatedClock, SimulatedRandomness
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop
from penstock.simulator.twins.mount import Mount

HOME = "/data"


class QuorumMachine:
    """One machine; `start` begins a process on it."""

    def __init__(self, loop: SimulatedLoop, properties: Mapping[str, str] | None = None) -> None:
        self.loop = loop
        self.clock = SimulatedClock(elapsed=loop.time)
        self.disk = SimulatedDisk(clock=self.clock)
        self.settings = node_settings({"log.dirs": HOME, **(properties or {})})
        self.commits: list[MetadataImage] = []
        self.fatal: list[BaseException] = []
        self._randomness = SimulatedRandomness("ids")
        self.identity: NodeIdentity | None = None
        self.quorum: MetadataQuorum | None = None

    def start(self, *, operations: int | None = None) -> MetadataQuorum:
        """`operations`: how many changes of the disk this process lives to see."""
        files = Mount(self.disk, operations=operations)

        def new_id() -> bytes:
            return self._randomness.bytes(16)

        def on_commit(image: MetadataImage, delta: MetadataDelta) -> None:
            assert delta.records
            self.commits.append(image)

        self.identity = format_or_load(files, self.settings, new_id, self.clock.now_ms())
        self.quorum = MetadataQuorum(
            files=files,
            clock=self.clock,
            randomness=self._randomness,
            loop=self.loop,
            settings=self.settings,
            identity=self.identity,
            peers=Peers(self.loop, "quorum"),
            new_id=new_id,
            on_commit=on_commit,
            on_fatal=self.fatal.append,
        )
        self.quorum.open()
        return self.quorum

    async def start_with_broker(self, incarnation: int = 1) -> MetadataQuorum:
        quorum = self.start()
        await self.register(quorum, incarnation)
        return quorum

    async def register(self, quorum: MetadataQuorum, incarnation: int) -> None:
        assert self.identity is not None
        request = registration(1, incarnation=incarnation, cluster_id=self.identity.cluster_id)
        response = await quorum.call(lambda controller: controller.register_broker(request))
        await quorum.call(lambda controller: controller.unfence_broker(1, response.broker_epoch))


def creating(*names: str, partitions: int = 1) -> Operation[CreateTopicsResponse]:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )
    return lambda controller: controller.create_topics(request)


def deleting(*names: str) -> Operation[DeleteTopicsResponse]:
    return lambda controller: controller.delete_topics(DeleteTopicsRequest(topic_names=list(names)))


async def create_topic(quorum: MetadataQuorum, name: str, partitions: int = 1) -> int:
    """The error code."""
    response = await quorum.call(creating(name, partitions=partitions))
    return response.topics[0].error_code


async def snapshot(quorum: MetadataQuorum) -> tuple[SnapshotId, int]:
    """Write a snapshot; returns its id and its size."""
    quorum.snapshot()
    (writing,) = quorum.snapshots.under_way
    written: tuple[SnapshotId, int] = await writing
    return written
