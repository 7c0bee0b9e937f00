"""The cluster story on brokers with two log directories each, of which one fails or is replaced by an empty one.

A failed directory takes its replicas out of sync, and its broker lives on; the directory still has its data when the
broker restarts. A replaced one is empty. The hardest case is a replica that is alone in sync when its directory is
replaced: it must not lead, with eligible leader replicas or without, or all others would truncate their logs to nothing
(`Durability` checks the promises against every new leader). Then no replica is known to have everything, so an
operator, who knows better, must request an unclean election.

Every fifth seed of the story `cluster` runs like this.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from penstock.metadata.partition import Partition
from penstock.simulator.program import interleaves, play_on_loop
from penstock.simulator.stories import cluster_story
from penstock.simulator.stories.cluster_checkers import Promises
from penstock.simulator.stories.cluster_circumstances import Circumstances, choose
from penstock.simulator.stories.cluster_story import MISFORTUNES, PROPERTIES, ROUNDS, TOPIC, ClusterStory
from penstock.simulator.stories.cluster_world import DATA, Machine
from penstock.simulator.story import StoryResult
from penstock.simulator.twins.loop import SimulatedLoop

DISKS = ("/mnt/a", "/mnt/b")
EVERY, REMAINDER = 5, 3
EVENTS = (
    *cluster_story.EVENTS, "directories failed", "directories replaced", "replaced alone in sync", "disks without ELR",
)  # fmt: skip
DISK_MISFORTUNES = (*MISFORTUNES, *["fail_directory"] * 4, *["replace_directory"] * 3, *["replace_alone"] * 3)
# The operations that fail on a disk that is dead, or only refuses to write, or to sync.
FAILURES: Mapping[str, Sequence[str]] = {
    "dead": ("read", "write", "truncate", "sync", "open", "create", "rename", "remove", "sync_directory"),
    "read-only": ("write", "truncate", "create", "rename", "remove"),
    "unsynced": ("sync",),
}


class DiskStory(ClusterStory):
    properties = {**PROPERTIES, "metadata.log.dir": DATA, "log.dirs": ",".join(DISKS)}

    def __init__(
        self, loop: SimulatedLoop, seed: int, *, rounds: int = ROUNDS, misfortunes: Sequence[str] = DISK_MISFORTUNES
    ) -> None:
        circumstances = Circumstances(flushes=choose(seed).flushes)
        super().__init__(loop, seed, rounds=rounds, misfortunes=misfortunes, circumstances=circumstances)
        self.disks = random.Random(f"{seed}/disks")
        self.elr = self.disks.random() < 0.5

    async def create(self) -> None:
        if not self.elr:
            await self.world.do_without_elr()
            self.events["disks without ELR"] += 1
        await super().create()

    # -- faults -----------------------------------------------------------------------------------------------------

    async def fail_directory(self, machine: Machine) -> None:
        """While the broker runs, or before it restarts."""
        if machine.disk.faults:
            return  # the other one must not fail as well
        disk = self.disks.choice(DISKS)
        if self.disks.random() < 0.3:
            self.faults.crash(machine)
        for operation in FAILURES[self.disks.choice(list(FAILURES))]:
            machine.disk.fail(operation, f"{disk}*")
        if not machine.runs:
            machine.start()
        await self.suffer()

    async def replace_directory(self, machine: Machine) -> None:
        await self.everybody_back()
        self.watch.doubt(machine)
        if self.disks.random() < 0.5:
            await self.faults.stop(machine)
        else:
            self.faults.crash(machine)
        self.replace(machine, self.disks.choice(DISKS))
        machine.start()
        await self.everybody_back()

    async def replace_alone(self, machine: Machine) -> None:
        """All other replicas die, and then the directory of the remaining one is replaced."""
        await self.everybody_back()
        promises = self.disks.choice(self.promises)
        alone, *others = [self.world.machines[f"broker-{each}"] for each in self.shuffled(self.partition(promises))]
        disk = self.disk_of(alone, promises)
        lost = [
            each
            for each in self.promises
            if self.disk_of(alone, each) == disk
            and {*self.partition(each).replicas} == {*self.partition(promises).replicas}
        ]
        survivor = self.survivor(others, lost)
        if survivor is None:
            return
        for other in others:
            self.faults.crash(other)
        await self.world.until(
            lambda: not {other.node_id for other in others} & {*self.partition(promises).isr},
            "the others are out of sync",
        )
        if self.partition(promises).isr != (alone.node_id,):
            await self.everybody_back()  # it fell behind just before
            return
        self.watch.doubt(alone)
        self.faults.crash(alone)
        self.replace(alone, disk)
        self.events["replaced alone in sync"] += 1
        alone.start()
        await self.world.until(lambda: alone.is_ready, "it is back, with nothing")
        await asyncio.sleep(self.disks.choice((0.5, 6.0)))
        await self.elect_survivor(survivor, lost)
        await self.everybody_back()

    async def elect_survivor(self, survivor: Machine, lost: Sequence[Promises]) -> None:
        """An unclean election takes any replica that the controller believes to be alive. An operator who wants a
        certain one waits until all others are known to be dead."""
        holders = [self.world.machines[f"broker-{each}"] for each in self.partition(lost[0]).replicas]
        for holder in holders:
            if holder.runs:
                self.faults.crash(holder)
        await self.world.until(lambda: all(map(self.is_fenced, holders)), "the controller knows that all are dead")
        survivor.start()
        for each in lost:
            if self.partition(each).leader < 0:
                await self.elect_uncleanly(each, survivor)

    def survivor(self, others: Sequence[Machine], lost: Sequence[Promises]) -> Machine | None:
        """A machine that has everything promised in all of these partitions, whichever of the others leaves the in-sync
        replicas first: its logs are as long as any other's."""
        ends = {other: [self.end_of(other, each) for each in lost] for other in others}
        longest = [max(each) for each in zip(*ends.values(), strict=True)]
        return next((other for other in others if ends[other] == longest), None)

    def shuffled(self, partition: Partition) -> list[int]:
        return self.disks.sample(partition.replicas, len(partition.replicas))

    def is_fenced(self, machine: Machine) -> bool:
        return self.watch.newest is not None and self.watch.newest.brokers[machine.node_id].fenced

    @staticmethod
    def disk_of(machine: Machine, promises: Promises) -> str | None:
        assert machine.broker is not None
        replica = machine.replicas.get(TOPIC, promises.index)
        return None if replica is None else machine.broker.storage.directory_of(replica.log).path

    @staticmethod
    def end_of(machine: Machine, promises: Promises) -> int:
        replica = machine.replicas.get(TOPIC, promises.index)
        assert replica is not None
        return replica.log.log_end_offset

    def replace(self, machine: Machine, disk: str | None) -> None:
        assert disk is not None
        self.events["directories replaced"] += 1
        machine.disk.remove_tree(disk)
        machine.disk.sync_directory("/mnt")  # no power loss restores the old one

    # -- repairs ----------------------------------------------------------------------------------------------------

    async def everybody_back(self) -> None:
        """Without eligible leader replicas the controller may have fenced all brokers but one, one by one, although
        none was dead. If the directory of that one is replaced, no replica is left that may lead."""
        while True:
            self.heal()
            await self.world.until(lambda: self.all_in_sync() or self.without_leader(), "all replicas are in sync")
            lost = self.without_leader()
            if not lost:
                break
            holders = [self.world.machines[f"broker-{each}"] for each in self.partition(lost[0]).replicas]
            survivor = max(holders, key=lambda holder: self.end_of(holder, lost[0]))
            await self.elect_survivor(survivor, lost[:1])
        await super().everybody_back()

    def without_leader(self) -> list[Promises]:
        """The partitions whose in-sync replicas are alive, and may not lead: their directories were replaced."""
        if not all(machine.is_ready and not self.is_fenced(machine) for machine in self.world.brokers):
            return []
        return [promises for promises in self.promises if self.partition(promises).leader < 0]

    def heal(self) -> None:
        """Disks work again; a broker notices that when it starts."""
        for machine in self.world.brokers:
            has_failed = machine.broker is not None and bool(machine.broker.storage.log_directories.offline)
            if machine.disk.faults or has_failed:
                self.events["directories failed"] += has_failed
                machine.disk.heal()
                if machine.runs:
                    self.faults.crash(machine)
        super().heal()


def play(seed: int) -> StoryResult:
    if seed % EVERY != REMAINDER:
        return cluster_story.play(seed)
    return play_on_loop(seed, lambda loop: DiskStory(loop, seed), interleaves=interleaves(seed))
