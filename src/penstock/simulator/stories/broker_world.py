"""Simulates a whole node, on virtual time with an unreliable disk and network: starts it, kills it, restarts it.

    async def story(loop):
        world = BrokerWorld(loop, seed)
        await world.start()
        async with world.client() as client:
            await client.create_topic("t")
        world.power_loss()
        await world.start()

The seed decides everything, so running the same seed again replays a failure.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from penstock.broker.node import Node
from penstock.broker.partitions.replicas import Replicas
from penstock.io.environment import Environment
from penstock.io.neighbours import NoNeighbours
from penstock.security.authorizer import Authorizer
from penstock.settings.node import NodeSettings
from penstock.simulator.client import Client, connected
from penstock.simulator.twins.clock import SimulatedClock, SimulatedRandomness
from penstock.simulator.twins.disk import Event, SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop
from penstock.simulator.twins.mount import DoomedMount, Mount
from penstock.simulator.twins.processes import SimulatedProcesses

HOST = "broker"
PORT = 9092
DATA = "/var/penstock"


class BrokerWorld:
    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int | str,
        *,
        properties: dict[str, str] | None = None,
        trace: list[Event] | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.clock = SimulatedClock(elapsed=loop.time)
        self.disk = SimulatedDisk(clock=self.clock, trace=trace)
        self.chance = random.Random(f"{seed}/world")
        self._authorizer = authorizer
        self.node: Node | None = None
        self.files: DoomedMount | None = None
        self.starts = 0
        self.is_starting = False
        self.failures: list[str] = []
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{PORT}",
            "log.dirs": DATA,
            **(properties or {}),
        }
        self.killed = asyncio.Event()
        self.on_killed: Callable[[], None] | None = None
        """Called when the node is killed at a change of its disk, before anything of it is gone."""
        self._program: asyncio.Task[None] | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def replicas(self) -> Replicas:
        """None as long as there is no broker."""
        return Replicas() if self.node is None or self.node.broker is None else self.node.broker.replicas

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    async def start(self, *, patience: float = 60.0, die_after: int | None = None) -> bool:
        """The node is ready on return; its error is raised if it refuses to start. False if it was killed before, by
        its `die_after`-th change of the disk."""
        self.starts += 1
        self.is_starting = True
        ready: asyncio.Future[bool] = self.loop.create_future()
        self._stopping = asyncio.Event()
        self.killed.clear()

        def on_killed() -> None:
            if self.on_killed is not None:
                self.on_killed()
            self.is_starting = False
            self.loop.kill(HOST)
            self.killed.set()
            if not ready.done():
                ready.set_result(False)

        self.files = DoomedMount(self.disk, on_killed)
        if die_after is not None:
            self.files.die_after(die_after)
        self._program = self.loop.start(HOST, self._run(ready, self._stopping, self.files))
        try:
            async with asyncio.timeout(patience):
                return await ready
        finally:
            self.is_starting = False

    async def _run(self, ready: asyncio.Future[bool], stopping: asyncio.Event, files: Mount) -> None:
        chance = random.Random(f"{self.seed}/children/{self.starts}")
        environment = Environment(
            loop=self.loop,
            files=files,
            clock=self.clock,
            randomness=SimulatedRandomness(f"{self.seed}/node/{self.starts}"),
            processes=SimulatedProcesses(self.disk, chance),
            neighbours=NoNeighbours(),
        )
        settings = NodeSettings.from_properties(self.properties)
        node = Node(settings, environment, authorizer=self._authorizer)
        try:
            await node.start()
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            ready.set_exception(error)
            return
        self.node = node
        ready.set_result(True)
        stop: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
        await asyncio.wait([stop, node.failure], return_when=asyncio.FIRST_COMPLETED)
        if node.failure.done():
            self.failures.append(node.failure.result())
            await node.abandon()
            stop.cancel()
        else:
            await node.stop()

    async def stop(self) -> None:
        """A clean stop."""
        assert self._stopping is not None and self._program is not None
        self._stopping.set()
        await self._program
        self.loop.kill(HOST)
        self.node = None

    def crash(self) -> None:
        """kill -9: what was written survives."""
        self.loop.kill(HOST)
        self.disk.crash()
        self.node = None

    def power_loss(self) -> None:
        """Unsynced data is lost, kept or torn."""
        self.loop.power_off(HOST)
        self.disk.power_loss(self.chance)
        self.loop.network.power_on(HOST)
        self.node = None

    def client(self, *, patience: float = 30.0, client_id: str = "simulated") -> AbstractAsyncContextManager[Client]:
        return connected(HOST, PORT, patience, client_id)
