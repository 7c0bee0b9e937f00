"""A replicated topic under faults: the real broker code, three to five brokers, on virtual time.

Producers write idempotently with acks=all and repeat what was not answered; consumers read on as they would anywhere.
Meanwhile brokers and controllers are killed, stopped, lose their power or their disk; links are cut in both directions
or in one, or slow; disks are slow, and bits on them flip; clocks jump; partitions are moved to other brokers and
leaders elected again.

What must hold all along is in `cluster_checkers`. In the end everybody is back, and then: all replicas are in sync and
byte for byte the same (`ReplicasAreEqual`), with everything that was promised in them (`Durability`), per producer in
order and once (`ExactlyOnce`), and all nodes have the same metadata (`MetadataImagesEqual`).

What may be expected of a power loss is the durability table of the design: on topics with `flush.messages=1`, which is
what some seeds have, all machines may lose it at once; on others all but one replica of those in sync, and that one
stays until the others have copied again what they lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.testing.simulated_loop import SimulatedLoop
from penstock.testing.simulation import cluster_moments
from penstock.testing.simulation.client import Lost
from penstock.testing.simulation.cluster_checkers import ClusterWatch, Promises
from penstock.testing.simulation.cluster_clients import Clients
from penstock.testing.simulation.cluster_faults import Faults
from penstock.testing.simulation.cluster_world import ClusterWorld, Machine
from penstock.testing.simulation.moments import Moments
from penstock.testing.simulation.program import PAUSES, interleaves, play_on_loop
from penstock.testing.simulation.replica_content import ReplicaContent, values_of
from penstock.testing.simulation.story import Outcome, Violation

TOPIC = "t"
REPLICAS = 3
ROUNDS = 6
EVENTS = (
    "acknowledged", "read", "repeated", "refused", "elections", "controller elections", "ISR changes", "truncations",
    "snapshot installs", "reassignments", "process crashes", "clean stops", "power losses", "power losses everywhere",
    "disks lost", "controllers lost", "symmetric partitions", "one-way partitions", "messages delayed",
    "connections broken", "clock jumps", "slow disks", "bits flipped",
    "repairs", "in sync again", "ends within a step", "aimed faults", PAUSES,
)  # fmt: skip

# What may happen; twice if it is to happen more often.
MISFORTUNES = (
    "kill", "kill", "stop", "lose_power", "lose_power", "lose_disk", "rot", "cut", "cut_one_way", "separate",
    "isolate", "slow_network", "reset", "jump", "slow_disk", "lose_controller", "reassign", "reassign", "elect",
    "doom", "doom", "aim", "aim", "aim",
)  # fmt: skip
# What brings a moment about that does not come by itself.
PROVOCATIONS = {
    cluster_moments.STARTS: "restart",
    cluster_moments.NO_CONTROLLER: "lose_controller",
    cluster_moments.STANDS: "lose_controller",
    cluster_moments.TRUNCATED: "isolate_and_heal",
    cluster_moments.CATCHES_UP: "isolate_and_heal",
    cluster_moments.ISR_CHANGES: "isolate_and_heal",
    cluster_moments.REASSIGNED: "reassign",
    cluster_moments.LOADS: "restart",
}
CRITICAL = {
    "while it starts": ("kill", "cut"),
    "while no controller is active": ("kill", "power loss", "cut"),
    "while it stands for election": ("kill",),
    "between a metadata record's append and its commit": ("kill", "cut"),
    "between append and replication": ("kill", "power loss", "cut", "lost disk"),
    "between append and sync": ("kill", "power loss"),
    "between a truncation and the next append": ("kill",),
    "while a replica catches up": ("kill", "cut"),
    "while the ISR changes": ("power loss",),
    "while a partition is reassigned": ("kill",),
}
MOMENTS = {**cluster_moments.METADATA, **cluster_moments.REPLICATION, **cluster_moments.TOPIC}
AIM_S = 8.0

PROPERTIES = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.fetch.max.bytes": "3000",
    "replica.socket.timeout.ms": "5000",
    "auto.create.topics.enable": "false",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "6000",
    "internal.metadata.log.segment.bytes": "1500",
}


class ClusterStory:
    properties: Mapping[str, str] = PROPERTIES
    topic_configs: Mapping[str, str] = {}
    critical_moments: Mapping[str, cluster_moments.Moment] = MOMENTS

    def __init__(
        self, loop: SimulatedLoop, seed: int, *, rounds: int = ROUNDS, misfortunes: Sequence[str] = MISFORTUNES
    ) -> None:
        self.chance = random.Random(f"{seed}/cluster")
        self.rounds = rounds
        self.misfortunes = misfortunes
        self.events: Counter[str] = Counter()
        self.world = ClusterWorld(
            loop,
            seed,
            controllers=self.chance.choice((1, 3, 3)),
            brokers=self.chance.choice((3, 3, 4, 5)),
            properties=dict(self.properties),
            events=self.events,
            one_machine=random.Random(f"{seed}/machines").random() < 0.5,
        )
        self.moments = self.world.moments = Moments(self.critical_moments)
        self.flushes = self.chance.random() < 0.4
        self.promises = [Promises(index) for index in range(2)]
        self.faults = Faults(self.world, self.chance, self.events)
        self.watch = ClusterWatch(self.world, TOPIC, self.promises, self.events)
        start_ms = self.world.brokers[0].clock.now_ms() - int(loop.time() * 1000)
        self.clients = Clients(self.world, TOPIC, self.chance, self.events, lambda: start_ms + int(loop.time() * 1000))

    async def run(self) -> None:
        self.world.loop.watcher = self.look
        await self.world.start_all()
        await self.create()
        async with asyncio.TaskGroup() as tasks:
            for promises in self.promises:
                for number in range(2):
                    tasks.create_task(self.clients.produce(promises, f"p{number}"))
                tasks.create_task(self.clients.consume(promises))
            for _ in range(self.rounds):
                await self.pause()
                await self.misfortune()
            await self.everybody_back()
            self.clients.over = True
        await self.check_replicas()
        await self.world.settled()

    def look(self) -> None:
        self.watch.look()
        self.moments.look(self.world.touched())

    async def pause(self) -> None:
        await asyncio.sleep(self.chance.choice((0.05, 0.5, 2.0)) * self.chance.random())

    async def create(self) -> None:
        configs = {
            "min.insync.replicas": "2",
            "internal.segment.bytes": self.chance.choice(("3000", "20000", "1000000")),
            "message.timestamp.after.max.ms": str(10**12),
            **({"flush.messages": "1"} if self.flushes else {}),
            **self.topic_configs,
        }
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=len(self.promises),
            replication_factor=REPLICAS,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        async with self.world.client("broker-1") as client:
            (result,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
        assert result.error_code == ErrorCode.NONE, result

    # -- misfortunes ------------------------------------------------------------------------------------------------

    async def misfortune(self) -> None:
        machine = self.chance.choice(self.world.brokers)
        what: Callable[[Machine], Awaitable[None]] = getattr(self, self.chance.choice(self.misfortunes))
        if self.chance.random() < 0.2:
            self.heal()
        elif not machine.runs:
            machine.start()
        else:
            await what(machine)

    async def kill(self, machine: Machine) -> None:
        self.faults.crash(machine)
        if self.chance.random() < 0.3:  # so quickly that nobody notices
            machine.start()

    async def doom(self, machine: Machine) -> None:
        """It ends in the middle of what it does, or of its start."""
        if self.chance.random() < 0.5:
            await self.restart(machine)
        self.faults.doom(machine, power=self.flushes and self.chance.random() < 0.5)
        await self.suffer()

    async def aim(self, machine: Machine) -> None:
        """A fault waits for a critical moment of whoever has it first, and strikes then."""
        moment = self.chance.choice(list(self.critical_moments))
        faults = (self.kill, self.isolate, *((self.lose_power,) if self.flushes else ()))
        aimed = asyncio.create_task(self.strike_at(moment, self.chance.choice(faults)))
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

    async def isolate_and_heal(self, machine: Machine) -> None:
        """What it has written alone meanwhile has to go."""
        self.faults.isolate(machine)
        await asyncio.sleep(self.chance.choice((2.0, 6.0)))
        self.heal()

    async def stop(self, machine: Machine) -> None:
        await self.faults.stop(machine)

    async def lose_power(self, machine: Machine) -> None:
        victims = [machine]
        if self.flushes:
            if self.chance.random() < 0.3:
                self.events["power losses everywhere"] += 1
                victims = [each for each in self.world.machines.values() if each.runs]
        else:
            await self.everybody_back()
            if self.chance.random() < 0.5 and (holders := self.holders_of_everything()):  # all but one of these
                stays = self.chance.choice(holders)
                victims = [each for each in self.world.brokers if each is not stays]
        for victim in victims:
            if not self.flushes:
                self.watch.doubt(victim)
            self.faults.lose_power(victim)
        if not self.flushes:
            await self.everybody_back()

    async def lose_disk(self, machine: Machine) -> None:
        await self.everybody_back()
        self.watch.doubt(machine)
        self.faults.lose_disk(machine)
        if self.chance.random() < 0.5:
            await self.pause()
        await self.everybody_back()

    async def rot(self, machine: Machine) -> None:
        """A bit flips, on a machine that runs and has lost it from its page cache, or on one that is stopped, or was
        killed. Then all of the log is read there, and has to be what it was."""
        await self.everybody_back()
        promises = self.chance.choice(self.promises)
        content = self.contents(promises).get(machine.name)
        places = [] if content is None else content.places()
        if content is None or not places:
            return
        end = content.ends[1]
        how = self.chance.choice(("runs", "stops", "dies"))
        if how == "runs":  # the active segment was written a moment ago, and is in the page cache
            places = [place for place in places if place.path != places[-1].path]
        elif how == "stops":
            await self.faults.stop(machine)
        else:
            self.watch.doubt(machine)  # what is behind the damage may have to be fetched again
            self.faults.crash(machine)
        if places:
            self.faults.flip(machine, places)
        machine.disk.cold = lambda path, position, size: path.endswith(".log")
        if how != "runs":
            machine.start()
        await self.clients.read_through(promises, machine.name, end)
        machine.disk.cold = None
        assert machine.node is not None
        self.events["repairs"] += machine.node.repairs.repaired
        await self.everybody_back()

    async def lose_controller(self, machine: Machine) -> None:
        """The active one, for a moment or for longer; it may lose its power."""
        active = self.world.active_controller()
        if active is None:
            return
        self.events["controllers lost"] += 1
        if self.chance.random() < 0.5:
            self.faults.crash(active)
        else:
            self.faults.lose_power(active)
        if len(self.world.controllers) == 1 or self.chance.random() < 0.5:
            await self.pause()
            if not active.runs:
                active.start()

    async def cut(self, machine: Machine) -> None:
        self.faults.cut()
        await self.suffer()

    async def cut_one_way(self, machine: Machine) -> None:
        self.faults.cut_one_way()
        await self.suffer()

    async def separate(self, machine: Machine) -> None:
        """From another broker only: both are alive to the controller, and one of them cannot copy from the other."""
        other = self.chance.choice([each for each in self.world.brokers if each is not machine])
        self.faults.separate(machine, other)
        await asyncio.sleep(self.chance.choice((0.5, 6.0)))

    async def isolate(self, machine: Machine) -> None:
        """Clients still write to it: what it leads goes on differently from what others take over."""
        self.faults.isolate(machine)
        await asyncio.sleep(self.chance.choice((0.5, 6.0)))

    async def slow_network(self, machine: Machine) -> None:
        self.faults.delay()
        await self.suffer()

    async def suffer(self) -> None:
        """Long enough, sometimes, for sessions to end."""
        await asyncio.sleep(self.chance.choice((0.5, 6.0)) * self.chance.random())

    async def reset(self, machine: Machine) -> None:
        self.faults.reset()

    async def jump(self, machine: Machine) -> None:
        self.faults.jump()

    async def suspend(self, machine: Machine) -> None:
        self.faults.suspend()

    async def slow_disk(self, machine: Machine) -> None:
        self.faults.slow_disk()

    async def reassign(self, machine: Machine) -> None:
        """To other brokers, or in another order; or a move under way is given up."""
        brokers = [int(each.name.removeprefix("broker-")) for each in self.world.brokers]
        replicas = self.chance.sample(brokers, REPLICAS) if self.chance.random() < 0.8 else None
        index = self.chance.choice(self.promises).index
        topic = ReassignableTopic(
            name=TOPIC, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
        )
        try:
            async with self.world.client(machine.name, patience=3.0) as client:
                answer = await client.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=2000))
        except Lost:
            return
        self.events["reassignments"] += not answer.error_code and not answer.responses[0].partitions[0].error_code

    async def elect(self, machine: Machine) -> None:
        """The preferred leaders."""
        try:
            async with self.world.client(machine.name, patience=3.0) as client:
                await client.ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000))
        except Lost:
            return

    # -- mending ----------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self.faults.heal()
        for machine in self.world.machines.values():
            if not machine.runs:
                machine.start()

    async def everybody_back(self) -> None:
        self.heal()
        await self.world.until(self.all_in_sync, "all replicas are in sync")
        self.watch.trust_all()
        self.events["in sync again"] += 1

    def all_in_sync(self) -> bool:
        if not all(machine.is_ready for machine in self.world.machines.values()):
            return False
        return all(
            each is not None and each.leader >= 0 and len(each.isr) == REPLICAS == len(each.replicas)
            for machine in self.world.brokers
            for each in self.partitions(machine)
        )

    def partitions(self, machine: Machine) -> list[Partition | None]:
        return [machine.image.topics.partition(TOPIC, promises.index) for promises in self.promises]

    def holders_of_everything(self) -> list[Machine]:
        found = [set(each.replicas) for each in self.partitions(self.world.brokers[0]) if each is not None]
        return [self.world.machines[f"broker-{broker_id}"] for broker_id in sorted(set.intersection(*found))]

    # -- the end ----------------------------------------------------------------------------------------------------

    def contents(self, promises: Promises) -> dict[str, ReplicaContent]:
        nodes = {machine: machine.node for machine in self.world.brokers if machine.node is not None}
        found = {machine: node.replicas.get(TOPIC, promises.index) for machine, node in nodes.items()}
        return {
            machine.name: ReplicaContent(machine, replica.log)
            for machine, replica in found.items()
            if replica is not None
        }

    async def check_replicas(self) -> None:
        def agree() -> bool:
            """And there are no more than there should be: a broker that was moved away from has deleted its own."""
            return all(
                len(contents) == REPLICAS and len({content.ends for content in contents.values()}) == 1
                for contents in map(self.contents, self.promises)
            )

        await self.world.until(agree, "all replicas have the same")
        for promises in self.promises:
            contents = {name: content.whole() for name, content in self.contents(promises).items()}
            if len(set(contents.values())) > 1:
                sizes = {name: len(content) for name, content in contents.items()}
                raise Violation("ReplicasAreEqual", f"partition {promises.index}: {sizes}")
            for name, content in contents.items():
                self.check_content(promises, name, content)
                break

    @staticmethod
    def check_content(promises: Promises, name: str, data: bytes) -> None:
        found = dict(values_of(data))
        promises.check(found, name)
        last: dict[bytes, int] = {}
        for offset, value in found.items():
            assert value in promises.sent, f"nobody sent {value!r}"
            producer, number, _ = value.split(b":", 2)
            if int(number) != last.get(producer, -1) + 1:
                raise Violation(
                    "ExactlyOnce",
                    f"partition {promises.index}: {value[:20]!r} at {offset} comes after {last.get(producer)}",
                )
            last[producer] = int(number)


def play(seed: int, rounds: int = ROUNDS, misfortunes: Sequence[str] = MISFORTUNES) -> Outcome:
    return play_on_loop(
        seed,
        lambda loop: ClusterStory(loop, seed, rounds=rounds, misfortunes=misfortunes),
        interleaves=interleaves(seed),
    )
