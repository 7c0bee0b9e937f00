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
from collections.abc import Awaitable, Callable

from penstock.model.errors import ErrorCode
from penstock.protocol.messages import add_raft_voter
from penstock.protocol.messages.quorum_structs import Listener
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.simulator.client import Client, Lost
from penstock.simulator.moments import Moments
from penstock.simulator.program import PAUSES, interleaves, play_on_loop
from penstock.simulator.stories import cluster_moments
from penstock.simulator.stories.cluster_checkers import ClusterWatch
from penstock.simulator.stories.cluster_faults import Faults
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
AIM_S = 3.0
# Brings about a moment that does not come by itself.
PROVOCATIONS = {
    cluster_moments.STARTS: "restart",
    cluster_moments.NO_CONTROLLER: "lose_controller",
    cluster_moments.STANDS: "lose_controller",
    cluster_moments.VOTERS_CHANGE: "change_voters",
}

PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "6000",
    "internal.metadata.log.segment.bytes": "1500",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}


class MetadataStory:
    def __init__(self, loop: SimulatedLoop, seed: int, *, rounds: int = ROUNDS) -> None:
        self.chance = random.Random(f"{seed}/metadata")
        self.rounds = rounds
        self.events: Counter[str] = Counter()
        self.is_dynamic = self.chance.random() < 0.6
        self.world = ClusterWorld(
            loop,
            seed,
            controllers=self.chance.choice((1, 3, 3, 3, 5)),
            brokers=2,
            properties=PROPERTIES,
            dynamic=self.is_dynamic,
            events=self.events,
        )
        if self.is_dynamic:
            self.world.add_controller(len(self.world.controllers) + 1)
        self.moments = self.world.moments = Moments(MOMENTS)
        self.faults = Faults(self.world, self.chance, self.events)
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

    def look(self) -> None:
        self.watch.look()
        self.moments.look(self.world.touched())

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
        what: Callable[[Machine], Awaitable[None]] = self.chance.choice(
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

    async def kill(self, machine: Machine) -> None:
        self.faults.crash(machine)

    async def lose_power(self, machine: Machine) -> None:
        self.faults.lose_power(machine)

    async def doom(self, machine: Machine) -> None:
        """It ends in the middle of its work, or of its start."""
        if self.chance.random() < 0.5:
            await self.restart(machine)
        self.faults.doom(machine, power=self.chance.random() < 0.5)

    async def aim(self, machine: Machine) -> None:
        """A fault waits for a critical moment of any machine, and strikes the first that has it."""
        moment = self.chance.choice(list(MOMENTS))
        aimed = asyncio.create_task(
            self.strike_at(moment, self.chance.choice((self.kill, self.lose_power, self.isolate)))
        )
        if moment in PROVOCATIONS:
            await getattr(self, PROVOCATIONS[moment])(machine)
        await aimed

    async def strike_at(self, moment: str, fault: Callable[[Machine], Awaitable[None]]) -> None:
        victim = await self.moments.come(moment, AIM_S)
        if victim is not None and victim.runs:
            self.events["aimed faults"] += 1
            await fault(victim)

    async def restart(self, machine: Machine) -> None:
        self.faults.crash(machine)
        machine.start()

    async def lose_controller(self, _: Machine) -> None:
        active = self.world.active_controller()
        if active is not None:
            await self.restart(active)

    async def isolate(self, machine: Machine) -> None:
        self.faults.isolate(machine)

    async def black_out(self, _: Machine) -> None:
        """All at once: what was acknowledged is on the disks."""
        self.events["power losses everywhere"] += 1
        for machine in self.world.machines.values():
            if machine.runs:
                self.faults.lose_power(machine)
        self.heal()

    async def stop(self, machine: Machine) -> None:
        await self.faults.stop(machine)

    async def lose_disk(self, _: Machine) -> None:
        """A broker's: nothing depends on its copy of the metadata."""
        machine = self.chance.choice(self.world.brokers)
        if machine.runs:
            self.faults.lose_disk(machine)

    async def cut(self, _: Machine) -> None:
        self.faults.cut()

    async def cut_one_way(self, _: Machine) -> None:
        self.faults.cut_one_way()

    async def slow_network(self, _: Machine) -> None:
        self.faults.delay()

    async def reset(self, _: Machine) -> None:
        self.faults.reset()

    async def jump(self, _: Machine) -> None:
        self.faults.jump()

    async def slow_disk(self, _: Machine) -> None:
        self.faults.slow_disk()

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

    def heal(self) -> None:
        self.faults.heal()
        for machine in self.world.machines.values():
            if not machine.runs:
                machine.start()


def play(seed: int, rounds: int = ROUNDS) -> StoryResult:
    return play_on_loop(seed, lambda loop: MetadataStory(loop, seed, rounds=rounds), interleaves=interleaves(seed))
