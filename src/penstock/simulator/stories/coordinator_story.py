"""Story: groups and transactions under faults, with the real broker code on three or more brokers.

Groups of both protocols share partitions, and their members join, leave, vanish and hang. Offsets are committed, and
groups deleted. Producers write transactions over all partitions of a topic and their group's offset, vanish, or are
replaced without knowing. Meanwhile brokers, including their coordinators, are killed, stopped, lose power, have full or
broken disks, are cut off or slowed down. Leaders are elected, logs truncated and compacted. Time is virtual.

The laws of the coordinators are in `coordinator_checkers`, `coordinator_clients`, `coordinator_groups` and
`coordinator_workers`, those of replicas in `replica_state`. At the end, when all nodes are back:

- `NoHangingTransaction`: no transaction blocks readers or offsets, except for those of a two-phase commit that are not
  ended yet;
- `GroupsSettle`: the remaining members share all partitions;
- `EveryoneIsAnswered`: every request to a broker that lives gets an answer, sooner or later, at all times.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.broker.partitions.replica import Replica
from penstock.metadata.partition import Partition
from penstock.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from penstock.records.compression import Codec
from penstock.simulator.program import PAUSES, interleaves, play_on_loop
from penstock.simulator.stories import cluster_moments, cluster_story
from penstock.simulator.stories.cluster_circumstances import Circumstances, choose
from penstock.simulator.stories.cluster_story import REPLICAS, TOPIC, ClusterStory
from penstock.simulator.stories.cluster_world import Machine
from penstock.simulator.stories.coordinator_checkers import CoordinatorWatch
from penstock.simulator.stories.coordinator_clients import (
    ENDLESS_S,
    Committer,
    CoordinatorClients,
    Deleter,
    OffsetReader,
)
from penstock.simulator.stories.coordinator_groups import SESSION_MS, Member, SimulatedGroup
from penstock.simulator.stories.coordinator_prepared import TwoPhaseWriter
from penstock.simulator.stories.coordinator_workers import NEW, OLD, CommittedReader, TransactionalWriter
from penstock.simulator.stories.replica_state import check_state
from penstock.simulator.story import StoryResult, Violation
from penstock.simulator.twins.loop import SimulatedLoop

EVENTS = (
    "commits", "commits of members", "commits too late", "groups deleted", "generations", "members fenced",
    "offsets read",
    "members left", "members vanished", "members hung", "transactions committed", "transactions aborted",
    "transactions given up", "transactions left open", "transactions cut short", "batches too late",
    "producers vanished", "producers taken for dead", "zombies refused", "transactions prepared",
    "prepared transactions left behind", "prepared transactions completed", "committed records read", "refused",
    "connections lost", "coordinators moved", "shards dropped", "truncations", "compactions", "process crashes",
    "clean stops", "power losses", "power losses everywhere", "full disks", "disks full by blocks",
    "aborts without room", "broken disks", "states compared", "symmetric partitions", "one-way partitions",
    "messages delayed", "slow disks", "clock jumps", "controllers lost", "in sync again", "offsets checked",
    "ends within a step", "aimed faults", PAUSES,
)  # fmt: skip
MISFORTUNES = (
    "kill", "kill", "kill", "stop", "lose_power", "lose_power", "fill_disk", "break_disk", "refuse_aborts",
    "cut", "cut_one_way",
    "separate", "isolate", "isolate", "slow_network", "reset", "jump", "slow_disk", "lose_controller", "elect", "elect",
    "doom", "doom", "aim", "aim", "aim",
)  # fmt: skip
CRITICAL = {
    "while it starts": ("kill",),
    "between append and replication": ("kill", "cut"),
    "between append and sync": ("kill", "power loss"),
    "while the ISR changes": ("kill", "cut"),
    "between a coordinator's append and its answer": ("kill", "cut"),
    "between a transaction's decision and its last marker": ("kill", "cut"),
    "while a transaction is open": ("kill", "power loss", "cut", "stop"),
    "while a two-phase transaction is open": ("kill", "cut"),
    "while a group rebalances": ("kill", "cut"),
}
MOMENTS = {**cluster_moments.METADATA, **cluster_moments.REPLICATION, **cluster_moments.COORDINATORS}
INTERNAL_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
INTERNAL_PARTITIONS = 2


class Rewriting(NamedTuple):
    """The topic setting that makes a broker decode what producers send in `codec`, in a thread, before the append."""

    configs: Mapping[str, str]
    codec: Codec = Codec.NONE


REWRITING = (
    Rewriting({}),
    Rewriting({"compression.type": "gzip"}),
    Rewriting({"compression.type": "uncompressed"}, Codec.LZ4),
    Rewriting({"cleanup.policy": "compact"}, Codec.SNAPPY),
)
UNDECIDED_S = 25.0  # transactions that were left open have timed out after this
PROPERTIES = {
    **cluster_story.PROPERTIES,
    "transaction.two.phase.commit.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "log.cleaner.backoff.ms": "2000",
}


class CoordinatorStory(ClusterStory):
    properties = PROPERTIES
    critical_moments = MOMENTS
    # The time in which groups settle; some members may wait for one that lost power.
    settles_s = ENDLESS_S + 30.0

    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int,
        *,
        rounds: int = cluster_story.ROUNDS,
        misfortunes: Sequence[str] = MISFORTUNES,
    ) -> None:
        circumstances = Circumstances(flushes=choose(seed).flushes)
        super().__init__(loop, seed, rounds=rounds, misfortunes=misfortunes, circumstances=circumstances)
        chance = random.Random(f"{seed}/coordinators")
        start_ms = self.world.brokers[0].clock.now_ms() - int(loop.time() * 1000)
        self.coordinator_watch = CoordinatorWatch(self.world, TOPIC, self.acknowledged, self.events)
        self.asking = asking = CoordinatorClients(
            self.world,
            TOPIC,
            chance,
            self.events,
            lambda: start_ms + int(loop.time() * 1000),
            self.coordinator_watch.epoch_at,
        )
        count = len(self.promises)
        self.committer = Committer(asking, "committer")
        self.offset_reader = OffsetReader(asking, self.committer, random.Random(f"{seed}/offsets"))
        self.deleter = Deleter(asking)
        self.groups = [
            SimulatedGroup(asking, "classic", count, members=3, classic=True),
            SimulatedGroup(asking, "consumer", count, members=3, classic=False),
        ]
        rewriting = random.Random(f"{seed}/rewriting").choice(REWRITING)
        self.topic_configs = rewriting.configs
        self.two_phase_writer = TwoPhaseWriter(asking, "two-phase", count)
        self.writers = [
            TransactionalWriter(asking, "new", count, NEW, rewriting.codec),
            TransactionalWriter(asking, "old", count, OLD, rewriting.codec),
            self.two_phase_writer,
        ]
        self.outcomes = {writer.name: writer.outcomes for writer in self.writers}
        self.committed_readers = [CommittedReader(asking, index, self.outcomes) for index in range(count)]

    def everybody(self) -> list[Committer | OffsetReader | Deleter | TransactionalWriter | CommittedReader | Member]:
        members = [member for group in self.groups for member in group.members]
        return [self.committer, self.offset_reader, self.deleter, *self.writers, *self.committed_readers, *members]

    def acknowledged(self) -> dict[tuple[str, int], int]:
        found = {(self.committer.group, 0): self.committer.acknowledged}
        for group in self.groups:
            found.update({(group.name, index): offset for index, offset in group.acknowledged.items()})
        for writer in self.writers:
            found[writer.group, 0] = -1  # the last committed offset is not known before its marker is written
        return found

    async def run(self) -> None:
        self.world.loop.watcher = self.look
        await self.world.start_all()
        await self.create()
        async with asyncio.TaskGroup() as tasks:
            for client in self.everybody():
                tasks.create_task(client.run())
            for _ in range(self.rounds):
                await self.pause()
                await self.misfortune()
                if self.chance.random() < 0.3:
                    await self.everybody_back()
                    await self.check_offsets()
            await self.everybody_back()
            self.asking.over = True
            await self.groups_settle()
        await self.check_offsets()
        await self.check_transactions()
        await self.world.settled()

    def look(self) -> None:
        self.coordinator_watch.look()
        self.moments.look(self.world.touched())

    async def create(self) -> None:
        """The internal topics, too: they have the durability of the others, and segments so small that there is
        something to compact."""
        await super().create()
        configs = {
            "cleanup.policy": "compact",
            "min.insync.replicas": "2",
            "internal.segment.bytes": self.chance.choice(("6000", "20000")),
            "min.cleanable.dirty.ratio": "0.1",
            **({"flush.messages": "1"} if self.flushes else {}),
        }
        await self.world.create_topics(INTERNAL_TOPICS, INTERNAL_PARTITIONS, REPLICAS, configs)

    async def pause(self) -> None:
        """Sometimes long enough for groups to form, and for logs to be compacted."""
        await super().pause()
        if self.chance.random() < 0.4:
            await asyncio.sleep(self.chance.uniform(0.0, 8.0))

    # -- faults -----------------------------------------------------------------------------------------------------

    async def fill_disk(self, machine: Machine) -> None:
        """By bytes; or by blocks, so that logs can grow for a while, and there is no space for another file."""
        self.events["full disks"] += 1
        block_size = self.chance.choice((1, 1024, 4096))
        machine.disk.fill(leave=self.chance.choice((0, 30, 200, 3000)), block_size=block_size)
        self.events["disks full by blocks"] += block_size > 1
        await self.suffer()
        self.mend_disk(machine)

    async def refuse_aborts(self, machine: Machine) -> None:
        """There is no space for what must be written when a transaction is aborted."""
        full = {machine, *(other for other in self.world.brokers if self.chance.random() < 0.5)}
        for each in sorted(full, key=lambda each: each.name):
            operation = self.chance.choice(("create", "write"))
            each.disk.fail(operation, f"*/{TOPIC}-*/*.txnindex", error=errno.ENOSPC)
        self.events["aborts without room"] += 1
        await asyncio.sleep(self.chance.uniform(1.0, 6.0))
        for each in sorted(full, key=lambda each: each.name):
            self.mend_disk(each)  # one that was started meanwhile could not recover

    async def break_disk(self, machine: Machine) -> None:
        """A file of a topic cannot be written, or synced; then the broker is restarted."""
        self.events["broken disks"] += 1
        topic = self.chance.choice((TOPIC, *INTERNAL_TOPICS))
        operation = self.chance.choice(("write", "sync")) if self.flushes else "write"
        machine.disk.fail(operation, f"*/{topic}-*/*", times=1)
        await self.suffer()
        self.mend_disk(machine)

    def mend_disk(self, machine: Machine) -> None:
        machine.disk.heal()
        failed = [failure for failure in self.world.failures if failure.startswith(machine.name)]
        for failure in failed:
            self.world.failures.remove(failure)
        if failed or any(replica.is_offline for replica in machine.replicas):
            self.faults.crash(machine)
            machine.start()

    # -- repairs ----------------------------------------------------------------------------------------------------

    def partitions(self, machine: Machine) -> list[Partition | None]:
        topics = ((TOPIC, len(self.promises)), *((name, INTERNAL_PARTITIONS) for name in INTERNAL_TOPICS))
        return [machine.image.topics.partition(name, index) for name, count in topics for index in range(count)]

    # -- the end ----------------------------------------------------------------------------------------------------

    async def check_offsets(self) -> None:
        await self.committer.check()
        await self.deleter.check()
        self.events["offsets checked"] += 1
        self.check_states()

    def check_states(self) -> None:
        for machine in self.world.brokers:
            for replica in machine.replicas:
                if replica.topic_partition.topic == TOPIC:
                    check_state(machine.name, replica)
                    self.events["states compared"] += 1

    async def groups_settle(self) -> None:
        try:
            for group in self.groups:
                await self.world.until(group.is_settled, "groups settle", self.settles_s)
        except Violation as violation:
            members = {group.name: [member.owned for member in group.members] for group in self.groups}
            raise Violation("GroupsSettle", f"{members}") from violation
        for group in self.groups:
            group.is_over = True

    async def check_transactions(self) -> None:
        try:
            await self.world.until(self.nothing_is_open, "no transaction is open", UNDECIDED_S)
        except Violation as violation:
            raise Violation("NoHangingTransaction", "some are open") from violation
        if self.two_phase_writer.prepared is not None:
            await self.two_phase_writer.complete()
            await self.check_transactions()
            return
        by_partition = []
        for index, reader in enumerate(self.committed_readers):
            everything = await CommittedReader(self.asking, index, self.outcomes).read_all()
            if everything[: len(reader.found)] != reader.found:
                raise Violation("NoAbortedRecord", f"partition {index}: {reader.found} was read, now {everything}")
            by_partition.append(everything)
        for writer in self.writers:
            found = [[number for name, number in values if name == writer.name] for values in by_partition]
            await writer.check(found)

    def nothing_is_open(self) -> bool:
        """Except for prepared transactions."""
        prepared = self.two_phase_writer.prepared
        spared = None if prepared is None else prepared.producer[0]
        for machine in self.world.brokers:
            if machine.broker is None:
                return False
            for replica in machine.replicas:
                if replica.leader is not None and not _is_decided(replica, spared):
                    return False
            for partition in machine.broker.coordinators.groups.partitions.values():
                if partition.shard is None or partition.shard.state.offsets.pending.keys() - {spared}:
                    return False
        return True


def _is_decided(replica: Replica, spared: int | None) -> bool:
    producers = replica.log.producers
    if spared is not None and spared in producers.ongoing.values():
        return len(producers.ongoing) == 1
    return replica.last_stable_offset >= replica.log.log_end_offset


def play(seed: int, **options: Any) -> StoryResult:
    return play_on_loop(seed, lambda loop: CoordinatorStory(loop, seed, **options), interleaves=interleaves(seed))
