"""Story: replicated topics under faults, with the real broker code on three to five brokers, on virtual time.

Producers write idempotently with acks=all and repeat unanswered requests; consumers read as usual. Meanwhile brokers
and controllers are killed, stopped, lose their power or their disk. Links are cut in both directions or in one, or
slow. Disks are slow, and bits on them flip. Clocks jump. Partitions are moved to other brokers, and leaders are elected
again.

`cluster_checkers` has the laws that hold all the time. At the end all nodes are back, and then: all replicas are in
sync and byte for byte the same (`ReplicasAreEqual`); they contain everything that was promised (`Durability`), per
producer in order and once (`ExactlyOnce`); and all nodes have the same metadata (`MetadataImagesEqual`).

Depending on the seed a world has more features (`cluster_circumstances`): no eligible leader replicas, unclean
elections (`cluster_unclean`), consumers that read from followers (`cluster_readers`), logs whose beginning is deleted
(`cluster_retention`), the brokers' timestamps (`cluster_stamps`), producers without idempotence (`cluster_producers`),
added partitions; each has its laws.

The design's durability table says what may be expected of a power loss. On topics with `flush.messages=1`, which some
seeds have, all machines may lose power at once. On others all in-sync replicas but one may, and that one stays up until
the others have copied again what they lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from penstock.controller.elections import Election
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.simulator.client import Lost
from penstock.simulator.program import PAUSES, interleaves, play_on_loop
from penstock.simulator.stories import cluster_moments
from penstock.simulator.stories.cluster_checkers import ClusterWatch, LastInSyncStays, Promises
from penstock.simulator.stories.cluster_circumstances import RETAINED_BYTES, Circumstances, choose, rack_of
from penstock.simulator.stories.cluster_clients import Clients
from penstock.simulator.stories.cluster_misfortunes import Misfortune, Misfortunes
from penstock.simulator.stories.cluster_producers import NAME, PlainProducer
from penstock.simulator.stories.cluster_readers import LeadersView, RackReader
from penstock.simulator.stories.cluster_retention import Deleter, Deletions
from penstock.simulator.stories.cluster_stamps import AppendTimes
from penstock.simulator.stories.cluster_unclean import EpochReader, UncleanElections, UncleanPromises
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.stories.replica_content import ReplicaContent, values_of
from penstock.simulator.story import StoryResult, Violation
from penstock.simulator.twins.loop import SimulatedLoop

TOPIC = "t"
PARTITIONS = 2
PARTITIONS_MAX = 4
REPLICAS = 3
COMMAND_S = 60.0
ROUNDS = 6
EVENTS = (
    "acknowledged", "read", "repeated", "refused", "elections", "controller elections", "ISR changes", "truncations",
    "snapshot installs", "reassignments", "process crashes", "clean stops", "power losses", "power losses everywhere",
    "disks lost", "controllers lost", "symmetric partitions", "one-way partitions", "messages delayed",
    "connections broken", "clock jumps", "slow disks", "bits flipped",
    "repairs", "in sync again", "worlds without ELR", "unclean elections", "promises given up",
    "truncations told to readers", "runs begun", "sent to followers", "read from followers", "deletions",
    "deleted by retention", "beginnings told to readers", "worlds with append times",
    "acknowledged without idempotence", "several partitions a request", "lost with acks=1", "partitions added",
    "handovers", "ends within a step", "aimed faults", PAUSES,
)  # fmt: skip

# The possible faults; listed twice to happen more often.
MISFORTUNES = (
    "kill", "kill", "stop", "lose_power", "lose_power", "lose_disk", "rot", "cut", "cut_one_way", "separate",
    "isolate", "slow_network", "reset", "jump", "slow_disk", "lose_controller", "reassign", "reassign", "elect",
    "doom", "doom", "aim", "aim", "aim",
)  # fmt: skip
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


Reader = EpochReader | RackReader


class ClusterStory(Misfortunes):
    properties: Mapping[str, str] = PROPERTIES
    topic_configs: Mapping[str, str] = {}
    critical_moments: Mapping[str, cluster_moments.Moment] = MOMENTS
    provocations = {
        cluster_moments.STARTS: "restart",
        cluster_moments.NO_CONTROLLER: "lose_controller",
        cluster_moments.STANDS: "lose_controller",
        cluster_moments.TRUNCATED: "isolate_and_heal",
        cluster_moments.CATCHES_UP: "isolate_and_heal",
        cluster_moments.ISR_CHANGES: "isolate_and_heal",
        cluster_moments.REASSIGNED: "reassign",
        cluster_moments.LOADS: "restart",
    }
    aim_s = 8.0

    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int,
        *,
        rounds: int = ROUNDS,
        misfortunes: Sequence[str] | None = None,
        circumstances: Circumstances | None = None,
    ) -> None:
        chance = random.Random(f"{seed}/cluster")
        events: Counter[str] = Counter()
        self.rounds = rounds
        self.circumstances = choose(seed) if circumstances is None else circumstances
        self.misfortunes = self._misfortunes() if misfortunes is None else misfortunes
        world = ClusterWorld(
            loop,
            seed,
            controllers=chance.choice((1, 3, 3)),
            brokers=chance.choice((3, 3, 4, 5)),
            properties=dict(self.properties),
            events=events,
            one_machine=random.Random(f"{seed}/machines").random() < 0.5,
        )
        super().__init__(world, chance, events)
        self.flushes = self.circumstances.flushes
        self.circumstances.prepare(self.world)
        self.promises = [self._new_promises(index) for index in range(PARTITIONS)]
        self.watch = ClusterWatch(self.world, TOPIC, self.promises, self.events)
        start_ms = self.world.brokers[0].clock.now_ms() - int(loop.time() * 1000)
        self.clients = Clients(self.world, TOPIC, self.chance, self.events, lambda: start_ms + int(loop.time() * 1000))
        self.readers: list[tuple[Promises, Reader]] = []
        self.plain: PlainProducer | None = None
        self.deletions: Deletions | None = None
        self.tasks: asyncio.TaskGroup | None = None
        self._lay_down_laws()

    def _misfortunes(self) -> Sequence[str]:
        here = self.circumstances
        if here.unclean:  # damaged data is repaired from other replicas, which may have discarded it
            return [*(each for each in MISFORTUNES if each != "rot"), *["strand"] * 5]
        return [*MISFORTUNES, *["grow"] * 4 * here.grows, *["separate"] * 3 * here.racks]

    def _new_promises(self, index: int) -> Promises:
        return UncleanPromises(index, self.events) if self.circumstances.unclean else Promises(index)

    def _lay_down_laws(self) -> None:
        here, laws = self.circumstances, self.watch.laws
        if not here.elr:
            laws.append(LastInSyncStays())
        if here.unclean:
            laws.append(UncleanElections())
            self.clients.may_lose_history = True
        if here.loses_beginning:
            retained = RETAINED_BYTES if here.retains else None
            self.deletions = Deletions(self.world, TOPIC, self.events, retained)
            laws.append(self.deletions)
            self.clients.beginning = self.deletions.beginning
            self.watch.followers_begin_with_leader = False
        if here.stamps:
            stamps = AppendTimes(self.world)
            laws.append(stamps)
            self.clients.check_answer = stamps.check_answer
        self.view = LeadersView(self.world, TOPIC, self.promises)
        if here.racks:
            laws.append(self.view)

    async def run(self) -> None:
        self.world.loop.watcher = self.look
        await self.world.start_all()
        if not self.circumstances.elr:
            await self.do_without_elr()
        await self.create()
        async with asyncio.TaskGroup() as self.tasks:
            if self.circumstances.plain_acks:
                self.plain = PlainProducer(self.clients, self.promises, self.circumstances.plain_acks)
                self.tasks.create_task(self.plain.run())
            for promises in self.promises:
                self.start_clients(promises)
            for _ in range(self.rounds):
                await self.pause()
                await self.misfortune()
            await self.everybody_back()
            self.clients.over = True
        await self.check_replicas()
        await self.world.settled()

    def start_clients(self, promises: Promises) -> None:
        """Two producers and one consumer."""
        assert self.tasks is not None
        here = self.circumstances
        for number in range(1 if here.plain_acks else 2):
            self.tasks.create_task(self.clients.produce(promises, f"p{number}"))
        if here.deletes:
            assert self.deletions is not None
            self.tasks.create_task(Deleter(self.clients, promises, self.deletions).run())
        reader: Reader
        if here.unclean:
            reader = EpochReader(self.clients, promises)
        elif here.racks:
            reader = RackReader(self.clients, promises, rack_of(self.chance.randrange(2)), self.view)
        else:
            self.tasks.create_task(self.clients.consume(promises))
            return
        self.readers.append((promises, reader))
        self.tasks.create_task(reader.run())

    async def do_without_elr(self) -> None:
        await self.world.do_without_elr()
        self.events["worlds without ELR"] += 1

    async def pause(self) -> None:
        await asyncio.sleep(self.chance.choice((0.05, 0.5, 2.0)) * self.chance.random())

    async def create(self) -> None:
        configs = {
            "min.insync.replicas": "2",
            "internal.segment.bytes": self.chance.choice(("3000", "20000", "1000000")),
            "message.timestamp.after.max.ms": str(10**12),
            **self.circumstances._replace(flushes=self.flushes).topic_configs(),
            **self.topic_configs,
        }
        self.events["worlds with append times"] += self.circumstances.stamps
        await self.world.create_topics([TOPIC], len(self.promises), REPLICAS, configs)

    # -- faults -----------------------------------------------------------------------------------------------------

    async def misfortune(self) -> None:
        machine = self.chance.choice(self.world.brokers)
        what: Misfortune = getattr(self, self.chance.choice(self.misfortunes))
        if self.chance.random() < 0.2:
            self.heal()
        elif not machine.runs:
            machine.start()
        else:
            await what(machine)

    async def kill(self, machine: Machine) -> None:
        self.faults.crash(machine)
        if self.chance.random() < 0.3:  # so quickly that no node notices
            machine.start()

    def aimed(self) -> Sequence[Misfortune]:
        return (self.kill, self.isolate, *((self.lose_power,) if self.flushes else ()))

    async def isolate_and_heal(self, machine: Machine) -> None:
        """What it has written alone meanwhile must be truncated."""
        self.faults.isolate(machine)
        await asyncio.sleep(self.chance.choice((2.0, 6.0)))
        self.heal()

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
        if self.deletions is not None:
            self.deletions.forget(machine)
        self.faults.lose_disk(machine)
        if self.chance.random() < 0.5:
            await self.pause()
        await self.everybody_back()

    async def rot(self, machine: Machine) -> None:
        """A bit flips, on a machine that runs and does not have it in its page cache, or on one that was stopped or
        killed. Then the whole log is read there, and must be what it was."""
        await self.everybody_back()
        promises = self.chance.choice(self.promises)
        content = self.contents(promises).get(machine.name)
        places = [] if content is None else content.places()
        if content is None or not places:
            return
        end = content.ends[1]
        how = self.chance.choice(("runs", "stops", "dies"))
        if how == "runs":  # the active segment was written just now, and is in the page cache
            places = [place for place in places if place.path != places[-1].path]
        elif how == "stops":
            await self.faults.stop(machine)
        else:
            self.watch.doubt(machine)  # it may have to fetch again what follows the damage
            self.faults.crash(machine)
        if places:
            self.faults.flip(machine, places)
        machine.disk.cold = lambda path, position, size: path.endswith(".log")
        if how != "runs":
            machine.start()
        await self.clients.read_through(promises, machine.name, lambda: self.log_start(machine, promises), end)
        machine.disk.cold = None
        assert machine.broker is not None
        self.events["repairs"] += machine.broker.repairs.repaired
        await self.everybody_back()

    async def lose_controller(self, machine: Machine) -> None:
        """The active one, for a moment or longer; it may lose its power."""
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

    async def separate(self, machine: Machine) -> None:
        """Only from another broker: the controller considers both alive, and one of them cannot copy from the other."""
        other = self.chance.choice([each for each in self.world.brokers if each is not machine])
        self.faults.separate(machine, other)
        await asyncio.sleep(self.chance.choice((0.5, 6.0)))

    async def isolate(self, machine: Machine) -> None:
        """Clients still write to it: its logs diverge from those of the leaders that take over."""
        self.faults.isolate(machine)
        await asyncio.sleep(self.chance.choice((0.5, 6.0)))

    async def suffer(self) -> None:
        """Sometimes long enough for sessions to end."""
        await asyncio.sleep(self.chance.choice((0.5, 6.0)) * self.chance.random())

    async def suspend(self, machine: Machine) -> None:
        self.faults.suspend()

    async def reassign(self, machine: Machine) -> None:
        """To other brokers, or in another order; or cancels a reassignment in progress."""
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
        """Elects the preferred leaders."""
        try:
            async with self.world.client(machine.name, patience=3.0) as client:
                await client.ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000))
        except Lost:
            return

    async def strand(self, machine: Machine) -> None:
        """One replica falls behind, all others die, and it returns alone: it leads only by an unclean election."""
        await self.everybody_back()
        promises = self.chance.choice(self.promises)
        partition = self.partition(promises)
        numbers = list(partition.replicas)
        self.chance.shuffle(numbers)
        stale, *others = [self.world.machines[f"broker-{number}"] for number in numbers]
        self.faults.crash(stale)
        await self.world.until(lambda: stale.node_id not in self.partition(promises).isr, "it is out of sync")
        await asyncio.sleep(self.chance.choice((0.5, 3.0)))
        for other in others:
            if self.chance.random() < 0.5:
                self.faults.crash(other)
            else:
                await self.faults.stop(other)
        stale.start()
        if self.circumstances.unclean == "command":
            await self.elect_uncleanly(promises, stale)
        await self.world.until(lambda: self.partition(promises).leader == stale.node_id, "the stranded replica leads")
        await self.pause()

    async def elect_uncleanly(self, promises: Promises, machine: Machine) -> None:
        """By an operator's command, repeated until it has taken effect."""
        topics = [TopicPartitions(topic=TOPIC, partitions=[promises.index])]
        request = ElectLeadersRequest(election_type=Election.UNCLEAN.value, topic_partitions=topics, timeout_ms=2000)
        await self.world.until(lambda: machine.is_ready, "the stranded replica is up")
        deadline = self.world.loop.time() + COMMAND_S
        while self.partition(promises).leader != machine.node_id and self.world.loop.time() < deadline:
            with suppress(Lost):
                async with self.world.client(machine.name, patience=3.0) as client:
                    await client.ask(request)
            await asyncio.sleep(0.5)

    async def grow(self, machine: Machine) -> None:
        """One more partition; if the answer is lost, the metadata shows whether it was added."""
        count = len(self.promises) + 1
        if count > PARTITIONS_MAX:
            return
        topic = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
        with suppress(Lost):
            async with self.world.client(machine.name, patience=3.0) as client:
                (result,) = (await client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=2000))).results
            if result.error_code == ErrorCode.NONE and self.partition_count() < count:
                raise Violation(
                    "PartitionsStay", f"{count} partitions were promised, there are {self.partition_count()}"
                )
        self.adopt_partitions()

    def adopt_partitions(self) -> None:
        """Added partitions get their producers and readers."""
        while len(self.promises) < self.partition_count():
            self.events["partitions added"] += 1
            self.promises.append(self._new_promises(len(self.promises)))
            self.start_clients(self.promises[-1])

    def partition_count(self) -> int:
        image = self.watch.newest
        topic = None if image is None else image.topics.by_name(TOPIC)
        return 0 if topic is None else len(topic.partitions)

    # -- repairs ----------------------------------------------------------------------------------------------------

    async def everybody_back(self) -> None:
        self.heal()
        self.adopt_partitions()
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

    def partition(self, promises: Promises) -> Partition:
        """The partition in the newest metadata."""
        partition = None if self.watch.newest is None else self.watch.newest.topics.partition(TOPIC, promises.index)
        assert partition is not None
        return partition

    def log_start(self, machine: Machine, promises: Promises) -> int:
        replica = machine.replicas.get(TOPIC, promises.index)
        return 0 if replica is None else replica.log.log_start_offset

    def holders_of_everything(self) -> list[Machine]:
        found = [set(each.replicas) for each in self.partitions(self.world.brokers[0]) if each is not None]
        return [self.world.machines[f"broker-{broker_id}"] for broker_id in sorted(set.intersection(*found))]

    # -- the end ----------------------------------------------------------------------------------------------------

    def contents(self, promises: Promises) -> dict[str, ReplicaContent]:
        found = {machine: machine.replicas.get(TOPIC, promises.index) for machine in self.world.brokers}
        return {
            machine.name: ReplicaContent(machine, replica.log)
            for machine, replica in found.items()
            if replica is not None
        }

    async def check_replicas(self) -> None:
        """There are no more than there should be: a broker that a replica was moved from has deleted its copy."""
        await self.world.until(lambda: all(map(self.replicas_agree, self.promises)), "all replicas have the same")
        for promises in self.promises:
            replicas = self.contents(promises)
            log_start = max(content.ends[0] for content in replicas.values())
            contents = {name: content.whole_from(log_start) for name, content in replicas.items()}
            if len(set(contents.values())) > 1:
                sizes = {name: len(content) for name, content in contents.items()}
                raise Violation("ReplicasAreEqual", f"partition {promises.index}: {sizes}")
            name, data = next(iter(contents.items()))
            found = dict(values_of(data))
            self.check_content(promises, name, found, log_start)
            if self.plain is not None:
                self.plain.check(promises, found, self.partition(promises).leader_epoch, log_start)
            for read_from, reader in self.readers:
                if read_from is promises:
                    await reader.finish(found, replicas[name].ends[1])

    def replicas_agree(self, promises: Promises) -> bool:
        """Their logs end at the same offset and begin at the leader's. One may begin later where replicas delete by
        themselves: by retention, or because it led when records were deleted, and no other node knows."""
        contents = self.contents(promises)
        leader = contents.get(f"broker-{self.partition(promises).leader}")
        if leader is None or len(contents) != REPLICAS:
            return False
        may_begin_later = self.circumstances.loses_beginning
        begin, end = leader.ends
        return all(
            content.ends[1] == end and (content.ends[0] == begin or (may_begin_later and content.ends[0] > begin))
            for content in contents.values()
        )

    @staticmethod
    def check_content(promises: Promises, name: str, found: dict[int, bytes], log_start: int) -> None:
        promises.check(found, name, log_start)
        last: dict[bytes, int] = {}
        for offset, value in found.items():
            assert value in promises.sent, f"no producer sent {value!r}"
            producer, number, _ = value.split(b":", 2)
            if producer == NAME.encode():
                continue  # it has a law of its own
            expected = last.get(producer, -1) + 1
            begins_later = producer not in last and (log_start or isinstance(promises, UncleanPromises))
            if int(number) != expected and not begins_later:
                raise Violation(
                    "ExactlyOnce",
                    f"partition {promises.index}: {value[:20]!r} at {offset} comes after {last.get(producer)}",
                )
            last[producer] = int(number)


def play(seed: int) -> StoryResult:
    return play_on_loop(seed, lambda loop: ClusterStory(loop, seed), interleaves=interleaves(seed))
