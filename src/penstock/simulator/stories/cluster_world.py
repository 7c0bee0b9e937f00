"""Simulates a whole cluster on virtual time: controllers and brokers, each on a machine with an unreliable disk.

    async def story(loop):
        world = ClusterWorld(loop, seed, controllers=3, brokers=2)
        await world.start_all()
        async with world.client("broker-1") as client:
            await client.create_topic("t")
        world.crash(world.active_controller())
        ...
        await world.settled()

The seed decides everything, so running the same seed again replays a failure.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from penstock.broker.broker_role import BrokerRole
from penstock.broker.metadata.formatting import format_quorum
from penstock.broker.metadata.store import METADATA_PARTITION
from penstock.broker.node import Node
from penstock.broker.partitions.replicas import Replicas
from penstock.controller.features import UpgradeType
from penstock.io.environment import Environment
from penstock.io.neighbours import Neighbours, NoNeighbours
from penstock.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from penstock.metadata.image import MetadataImage
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.settings.node import NodeSettings
from penstock.simulator.client import Client, connected
from penstock.simulator.moments import Moments
from penstock.simulator.story import Violation
from penstock.simulator.twins.clock import SimulatedClock, SimulatedRandomness
from penstock.simulator.twins.disk import Event, SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop
from penstock.simulator.twins.mount import DoomedMount, Mount
from penstock.simulator.twins.neighbours import SimulatedNeighbours
from penstock.simulator.twins.processes import SimulatedProcesses

PORT = 9092
CONTROLLER_PORT = 9093
DATA = "/var/penstock"
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
DECISION_BEING_WRITTEN = ".swap.tmp"
NEVER = 1 << 60
# A node that finds no leader asks again after 20 ms; that would be half the events of a simulation.
PATIENT = {"controller.quorum.retry.backoff.ms": "100"}


class DiskEvents(list[Event]):
    """Counts what only the disk shows, when it happens: snapshots of the metadata fetched from other nodes, and
    segments that a compaction has replaced. Also tracks what is incomplete: logs that were truncated and have nothing
    new yet, swaps that are decided and not finished."""

    def __init__(self, events: Counter[str]) -> None:
        super().__init__()
        self._events = events
        self.truncated: set[str] = set()
        self.swaps: set[str] = set()

    def append(self, event: Event) -> None:
        operation, path = event[0], str(event[1])
        if operation == "write":
            self.truncated.discard(path)
        elif operation == "truncate":
            if path.endswith(".log") and METADATA_PARTITION.topic not in path:
                self.truncated.add(path)
        elif operation == "rename":
            if path.endswith(".checkpoint.download.part"):
                self._events["snapshot installs"] += 1
            elif path.endswith(".log.swap"):
                self._events["compactions"] += 1
            elif path.endswith(DECISION_BEING_WRITTEN):
                self.swaps.add(path.removesuffix(".tmp"))
        elif operation == "remove":
            self.swaps.discard(path)


class Machine:
    """One host, its disk, and the node that runs on it, if any."""

    def __init__(self, world: ClusterWorld, name: str, properties: dict[str, str]) -> None:
        self.world = world
        self.name = name
        self.is_controller = name.startswith("controller")
        self.clock = SimulatedClock(elapsed=world.loop.time)
        self.disk_events = DiskEvents(world.events)
        self.disk = self._new_disk()
        self.properties = properties
        self.starts = 0
        self.node: Node | None = None  # set from its construction on
        self.runs = False
        self.is_ready = False
        self._stopping: asyncio.Event | None = None
        self._program: asyncio.Task[None] | None = None
        self._files: DoomedMount | None = None
        self._on_doom: Callable[[], None] = self.crash

    def start(self) -> None:
        """The node may wait for others before it is ready."""
        self.starts += 1
        self.runs = True
        self._stopping = asyncio.Event()
        self.disk_events.truncated.clear()
        self.disk_events.swaps.clear()
        self._files = DoomedMount(self.disk, lambda: self._on_doom())
        self._program = self.world.loop.start(self.name, self._run(self._stopping, self._files))

    def doom(self, changes: int, end: Callable[[], None]) -> None:
        """The node ends before the change of its disk after so many, whatever it is doing then. `end` is how: a crash,
        or a power loss."""
        assert self._files is not None
        self._on_doom = end
        self._files.die_after(changes)

    async def _run(self, stopping: asyncio.Event, files: Mount) -> None:
        world = self.world
        seed = f"{world.seed}/{self.name}/{self.starts}"
        environment = Environment(
            loop=world.loop,
            files=files,
            clock=self.clock,
            randomness=SimulatedRandomness(seed),
            processes=SimulatedProcesses(self.disk, random.Random(seed)),
            neighbours=world.neighbours,
        )
        self.node = node = Node(NodeSettings.from_properties(self.properties), environment)
        starting: asyncio.Future[Any] = asyncio.ensure_future(node.start())
        stop: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
        await asyncio.wait([starting, stop, node.failure], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not node.failure.done():
            if (error := starting.exception()) is not None:
                world.failures.append(f"{self.name} cannot start: {error!r}")
                return
            self.is_ready = True
            await asyncio.wait([stop, node.failure], return_when=asyncio.FIRST_COMPLETED)
        if node.failure.done():
            world.failures.append(f"{self.name}: {node.failure.result()}")
            starting.cancel()
            stop.cancel()
            await node.abandon()
        elif starting.done():
            await node.stop()
        else:
            starting.cancel()
            await node.abandon()

    def spare(self) -> None:
        """Cancels `doom`."""
        if self._files is not None:
            self._files.die_after(NEVER)

    async def stop(self) -> None:
        self.spare()
        assert self._stopping is not None and self._program is not None
        self._stopping.set()
        await self._program
        self._gone()
        self.world.loop.kill(self.name)

    def crash(self) -> None:
        self._gone()
        self.world.loop.kill(self.name)
        self.disk.crash()

    def power_loss(self) -> None:
        self._gone()
        self.world.loop.power_off(self.name)
        self.disk.power_loss(self.world.chance)
        self.world.loop.network.power_on(self.name)

    def lose_disk(self) -> None:
        """The machine gets an empty disk."""
        self.disk = self._new_disk()

    def _new_disk(self) -> SimulatedDisk:
        disk = SimulatedDisk(clock=self.clock, trace=self.disk_events)
        disk.on_failure = lambda fault: self.world.moments.strike(fault, self)
        return disk

    def _gone(self) -> None:
        self.node = None
        self.runs = self.is_ready = False

    @property
    def node_id(self) -> int:
        return int(self.properties["node.id"])

    def directory_id(self, directory: str) -> bytes:
        assert self.node is not None
        return self.node.identity.directories[directory]

    @property
    def broker(self) -> BrokerRole | None:
        """None while a node starts, and after it has ended."""
        return None if self.node is None else self.node.broker

    @property
    def replicas(self) -> Replicas:
        broker = self.broker
        return Replicas() if broker is None else broker.replicas

    @property
    def image(self) -> MetadataImage:
        assert self.node is not None
        return self.node.image


class ClusterWorld:
    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int | str,
        *,
        controllers: int = 3,
        brokers: int = 2,
        properties: dict[str, str] | None = None,
        dynamic: bool = False,
        events: Counter[str] | None = None,
        one_machine: bool = False,
    ) -> None:
        """`dynamic`: the voters are in the log (kraft.version 1), and not in the properties. `one_machine`: processes
        find each other directly, so that they know when one has died."""
        self.neighbours: Neighbours = SimulatedNeighbours(loop) if one_machine else NoNeighbours()
        self.events: Counter[str] = Counter() if events is None else events
        self.loop = loop
        self.seed = seed
        self.chance = random.Random(f"{seed}/world")
        self.failures: list[str] = []
        self.moments: Moments[Machine] = Moments({})
        """The critical moments, as the story declares them."""
        voters = ",".join(
            f"{100 + number}@controller-{number}:{CONTROLLER_PORT}" for number in range(1, controllers + 1)
        )
        servers = ",".join(f"controller-{number}:{CONTROLLER_PORT}" for number in range(1, controllers + 1))
        self.shared = shared = {
            "log.dirs": DATA,
            **PATIENT,
            "controller.listener.names": "CONTROLLER",
            **({"controller.quorum.bootstrap.servers": servers} if dynamic else {"controller.quorum.voters": voters}),
            **({} if dynamic else {"penstock.cluster.id": CLUSTER_ID}),
            **(properties or {}),
        }
        self.user: tuple[str, str] | None = None
        """The name and password with which clients log in, if they have to."""
        self.logins = 0
        self.machines: dict[str, Machine] = {}
        for number in range(1, controllers + 1):
            self.add_controller(number)
        if dynamic:
            randomness = SimulatedRandomness(f"{seed}/format")
            format_quorum(
                [(Mount(each.disk), NodeSettings.from_properties(each.properties)) for each in self.controllers],
                lambda: randomness.bytes(16),
                self.machines["controller-1"].clock.now_ms(),
                CLUSTER_ID,
            )
        for number in range(1, brokers + 1):
            name = f"broker-{number}"
            own = {"process.roles": "broker", "node.id": str(number), "listeners": f"PLAINTEXT://{name}:{PORT}"}
            self.machines[name] = Machine(self, name, {**shared, **own})

    def add_controller(self, number: int) -> Machine:
        name = f"controller-{number}"
        own = {
            "process.roles": "controller",
            "node.id": str(100 + number),
            "listeners": f"CONTROLLER://{name}:{CONTROLLER_PORT}",
        }
        machine = self.machines[name] = Machine(self, name, {**self.shared, **own})
        return machine

    @property
    def controllers(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine.is_controller]

    @property
    def brokers(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if not machine.is_controller]

    def touched(self) -> list[Machine]:
        """The machines whose code has run since the watcher last looked; a node's knowledge cannot have changed
        otherwise."""
        machines = self.machines
        return [machines[host] for host in self.loop.touched if host in machines]

    async def start_all(self) -> None:
        for machine in self.machines.values():
            if not machine.runs:
                machine.start()
        await self.until(lambda: all(machine.is_ready for machine in self.machines.values()), "all nodes are ready")

    def active_controller(self) -> Machine | None:
        for machine in self.controllers:
            if machine.node is not None and hasattr(machine.node, "quorum") and machine.node.quorum.is_active:
                return machine
        return None

    async def until(self, condition: Callable[[], object], what: str, patience_s: float = 120.0) -> None:
        deadline = self.loop.time() + patience_s
        while not condition():
            assert not self.failures, self.failures
            if self.loop.time() >= deadline:
                raise Violation("Progress", f"not within {patience_s:g} s: {what}")
            await asyncio.sleep(0.05)

    async def settled(self) -> MetadataImage:
        """The image, once every running node has the same."""

        def alike() -> bool:
            images = [machine.image for machine in self.machines.values() if machine.is_ready]
            return len({(image.offset, image.epoch) for image in images}) == 1

        await self.until(alike, "all nodes have replayed the same metadata")
        images = [machine.image for machine in self.machines.values() if machine.is_ready]
        for image in images:
            assert image.same_content(images[0]), f"seed {self.seed}: images differ at offset {image.offset}"
        return images[0]

    async def controllers_registered(self) -> None:
        """Features change only when all voters have said what they support."""
        ids = {machine.node_id for machine in self.controllers}
        await self.until(
            lambda: all(
                ids <= machine.image.controllers.keys() for machine in self.machines.values() if machine.is_ready
            ),
            "all controllers are registered",
        )

    async def create_topics(
        self, names: Iterable[str], partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name in names
        ]
        async with self.client("broker-1") as client:
            answer = await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        assert all(result.error_code == ErrorCode.NONE for result in answer.topics), answer

    async def do_without_elr(self) -> None:
        """No eligible leader replicas are kept."""
        await self.controllers_registered()
        update = FeatureUpdateKey(
            feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE
        )
        async with self.client("broker-1") as client:
            answer = await client.ask(UpdateFeaturesRequest(feature_updates=[update]))
        assert answer.error_code == ErrorCode.NONE, answer

    def client(
        self, name: str, *, patience: float = 30.0, client_id: str = "simulated"
    ) -> AbstractAsyncContextManager[Client]:
        self.logins += self.user is not None
        return connected(name, PORT, patience, client_id, self.user)
