"""Story: the metadata of whole clusters under faults: controllers and brokers, the real code, on virtual time.

Clients create and delete topics and request producer ids, through any broker they find. Meanwhile controllers and
brokers are killed, lose power, one or all at once, are cut off in both directions or in one. Clocks jump. Disks and
links are slow. Brokers return with an empty disk. If voters are in the log (kraft.version 1), they change. The metadata
log is truncated and replaced by snapshots all the time.

At all times there is one active controller in an epoch, and nodes that have replayed the same records have the same
image (`cluster_checkers`). At the end, with all nodes back: what was acknowledged is so on every node
(`AnsweredStays`), and no producer id was given twice (`ProducerIdsUnique`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from penstock.model.errors import ErrorCode
from penstock.protocol.messages import add_raft_voter
from penstock.protocol.messages.quorum_structs import Listener
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.simulator.client import Client, Lost
from penstock.simulator.program import PAUSES, interleaves, play_on_loop
from penstock.simulator.stories import cluster_moments
from penstock.simulator.stories.cluster_checkers import ClusterWatch
from penstock.simulator.stories.cluster_misfortunes import Misfortune, Misfortunes
from penstock.simulator.stories.cluster_world import CLUSTER_ID, CONTROLLER_PORT, DATA, ClusterWorld, Machine
from penstock.simulator.story import StoryResult, Violation
from penstock.simulator.twins.loop import SimulatedLoop

ROUNDS = 16
PROGRESS_S = 30.0
EVENTS = (
    "topics created", "topics deleted", "producer ids", "controller elections", "snapshot installs", "voter changes",
    "process crashes", "clean stops", "power losses", "power losses everywhere", "disks lost", "symmetric partitions",
    "one-way partitions", "messages delayed", "connections broken", "clock jumps", "slow disks",
    "ends within a step", "aimed faults", PAUSES,
)  # fmt: skip
CRITICAL = {
    "while it starts": ("kill", "power loss", "cut"),
    "while no controller is active": ("kill", "power loss", "cut"),
    "while it stands for election": ("kill", "power loss"),
    "between a metadata record's append and its commit": ("kill", "power loss", "cut"),
    "while it downloads a metadata snapshot": ("kill", "power loss"),
    "while it writes a metadata snapshot": ("kill",),
    "while voters change": ("kill",),
}
MOMENTS = {**cluster_moments.METADATA, **cluster_moments.VOTERS}
PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "6000",
    "internal.metadata.log.segment.bytes": "1500",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}


class MetadataStory(Misfortunes):
    critical_moments = MOMENTS
    provocations = {
        cluster_moments.STARTS: "restart",
        cluster_moments.NO_CONTROLLER: "lose_controller",
        cluster_moments.STANDS: "lose_controller",
        cluster_moments.VOTERS_CHANGE: "change_voters",
    }
    aim_s = 3.0
    flushes = True

    def __init__(self, loop: SimulatedLoop, seed: int, *, rounds: int = ROUNDS) -> None:
        chance = random.Random(f"{seed}/metadata")
        events: Counter[str] = Counter()
        self.rounds = rounds
        self.is_dynamic = chance.random() < 0.6
        world = ClusterWorld(
            loop,
            seed,
            controllers=chance.choice((1, 3, 3, 3, 5)),
            brokers=2,
            properties=PROPERTIES,
            dynamic=self.is_dynamic,
            events=events,
        )
        if self.is_dynamic:
            world.add_controller(len(world.controllers) + 1)
        super().__init__(world, chance, events)
        self.watch = ClusterWatch(self.world, "", (), self.events)
        self.answered: dict[str, bool] = {}  # topics, and whether they should exist
        self.producer_ids: set[int] = set()

    async def run(self) -> None:
        self.world.loop.watcher = self.look
        await self.world.start_all()
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.rounds):
                tasks.create_task(self.ask(lambda client, number=number: self.create(client, f"topic-{number}")))  # type: ignore[misc]
                await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.5, 2.0)))
                if self.chance.random() < 0.3:
                    tasks.create_task(self.ask(self.delete))
                if self.chance.random() < 0.3:
                    tasks.create_task(self.ask(self.take_producer_id))
                if self.chance.random() < 0.6:
                    await self.misfortune()
            self.heal()
            await self.world.until(self.all_ready, "all nodes are ready")
        await self.make_progress()
        await self.check()

    async def make_progress(self) -> None:
        """Brokers that have not sent heartbeats may be fenced for another moment."""
        deadline = self.world.loop.time() + PROGRESS_S
        while "last" not in self.answered:
            if self.world.loop.time() > deadline:
                raise Violation("Progress", f"no topic can be created {PROGRESS_S:g} s after all has healed")
            await self.ask(lambda client: self.create(client, "last"))
            await asyncio.sleep(0.5)

    def all_ready(self) -> bool:
        return all(machine.is_ready for machine in self.world.machines.values())

    async def check(self) -> None:
        image = await self.world.settled()
        found = {topic.name for topic in image.topics}
        for name, is_there in self.answered.items():
            if (name in found) != is_there:
                raise Violation("AnsweredStays", f"{name} should{'' if is_there else ' not'} be there")

    # -- clients ----------------------------------------------------------------------------------------------------

    async def ask(self, question: Callable[[Client], Awaitable[None]]) -> None:
        """Through one of the brokers; without an answer the result is unknown."""
        try:
            async with self.world.client(self.chance.choice(self.world.brokers).name, patience=20) as client:
                await question(client)
        except Lost:
            self.events["connections lost"] += 1

    async def create(self, client: Client, name: str) -> None:
        code = await client.create_topic(name)
        # Asked twice on the way, as the controller changed: the topic was created.
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.answered[name] = True
            self.events["topics created"] += 1

    async def delete(self, client: Client) -> None:
        there = [name for name, is_there in self.answered.items() if is_there]
        if there:
            name = self.chance.choice(there)
            del self.answered[name]  # unknown until there is an answer
            if await client.delete_topic(name) in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self.answered[name] = False
                self.events["topics deleted"] += 1

    async def take_producer_id(self, client: Client) -> None:
        given = await client.producer_id()
        if given is not None:
            self.events["producer ids"] += 1
            if given in self.producer_ids:
                raise Violation("ProducerIdsUnique", f"{given} was given twice")
            self.producer_ids.add(given)

    # -- faults -----------------------------------------------------------------------------------------------------

    async def misfortune(self) -> None:
        active = self.world.active_controller()
        machine = self.chance.choice([active or self.world.controllers[0], *self.world.machines.values()])
        down = [each for each in self.world.machines.values() if not each.runs]
        what: Misfortune = self.chance.choice(
            (
                *(self.kill, self.kill, self.lose_power, self.lose_power, self.stop, self.lose_disk, self.black_out),
                *(self.cut, self.cut_one_way, self.slow_network, self.reset, self.jump, self.slow_disk),
                *(self.change_voters, self.change_voters, self.doom, self.doom, self.aim, self.aim),
            )
        )
        if self.chance.random() < 0.15:
            self.heal()
        elif down and self.chance.random() < 0.5:
            self.chance.choice(down).start()
        elif machine.runs and len(down) < 2:
            await what(machine)

    def aimed(self) -> Sequence[Misfortune]:
        return (self.kill, self.lose_power, self.isolate)

    async def lose_controller(self, _: Machine) -> None:
        active = self.world.active_controller()
        if active is not None:
            await self.restart(active)

    async def black_out(self, _: Machine) -> None:
        """All at once: what was acknowledged is on the disks."""
        self.events["power losses everywhere"] += 1
        for machine in self.world.machines.values():
            if machine.runs:
                self.faults.lose_power(machine)
        self.heal()

    async def lose_disk(self, _: Machine) -> None:
        """A broker's: nothing depends on its copy of the metadata."""
        machine = self.chance.choice(self.world.brokers)
        if machine.runs:
            self.faults.lose_disk(machine)

    async def change_voters(self, _: Machine) -> None:
        """A voter is added or removed, as the active controller sees it."""
        active = self.world.active_controller()
        if not self.is_dynamic or active is None or active.node is None:
            return
        voters = active.node.quorum.voters.node_ids
        outside = [each for each in self.world.controllers if each.is_ready and each.node_id not in voters]
        inside = [each for each in self.world.controllers if each.is_ready and each.node_id in voters]
        if outside and (len(voters) < 3 or self.chance.random() < 0.5):
            await self.add_voter(self.chance.choice(outside))
        elif len(inside) > 1:
            await self.remove_voter(self.chance.choice(inside))

    async def add_voter(self, machine: Machine) -> None:
        endpoint = Listener(name="CONTROLLER", host=machine.name, port=CONTROLLER_PORT)
        request = add_raft_voter.AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=3000,
            voter_id=machine.node_id,
            voter_directory_id=machine.directory_id(DATA),
            listeners=[endpoint],
        )
        await self.ask(lambda client: self.change(client, request))

    async def remove_voter(self, machine: Machine) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=machine.node_id, voter_directory_id=machine.directory_id(DATA)
        )
        await self.ask(lambda client: self.change(client, request))

    async def change(
        self, client: Client, request: add_raft_voter.AddRaftVoterRequest | RemoveRaftVoterRequest
    ) -> None:
        answer = await client.ask(request)
        self.events["voter changes"] += answer.error_code == ErrorCode.NONE


def play(seed: int, rounds: int = ROUNDS) -> StoryResult:
    return play_on_loop(seed, lambda loop: MetadataStory(loop, seed, rounds=rounds), interleaves=interleaves(seed))
