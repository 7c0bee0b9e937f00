"""Every checker of the simulated cluster catches someone: the real broker code, broken on purpose, one law at a time.

A variant is played with seed after seed until the checker named with it speaks. What is broken is broken on all nodes,
unless it says otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from penstock.broker.metadata import quorum
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.store import MetadataStore
from penstock.broker.partitions import follower_fetch
from penstock.broker.partitions.repair import Repairs
from penstock.broker.partitions.replica import Replica
from penstock.broker.storage.directory_assignments import DirectoryAssignments
from penstock.controller import directories, leaders
from penstock.controller.elections import Wanted
from penstock.log.log import Appended, Log
from penstock.log.segment import Segment
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.metadata_records import PartitionChangeRecord
from penstock.raft.quorum_state import QUORUM_STATE_FILE, ElectionState, encode_quorum_state
from penstock.records.batch import BatchHeader
from penstock.replication.partition import LeaderState, Proposal
from penstock.replication.producers import ProducerStates
from penstock.replication.progress import NO_BROKER_EPOCH, Follower
from penstock.simulator.program import play_on_loop
from penstock.simulator.stories.cluster_disks import DiskStory
from penstock.simulator.stories.cluster_story import REPLICAS, ROUNDS, TOPIC, ClusterStory
from penstock.simulator.stories.cluster_world import Machine
from penstock.simulator.twins.loop import SimulatedLoop
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = 30


# -- the quorum -----------------------------------------------------------------------------------------------------


def vote_without_sync(patch: Patch) -> None:
    """`quorum-state` is written, and not synced."""

    def write_election(
        self: MetadataStore, state: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
    ) -> None:
        path = os.path.join(self.directory, QUORUM_STATE_FILE)
        file = self._files.open(path + ".tmp", create=True)
        file.truncate(0)
        file.pwrite(encode_quorum_state(state, min(kraft_version, 1), voter_ids), 0)
        file.close()
        self._files.rename(path + ".tmp", path)

    patch.setattr(MetadataStore, "write_election", write_election)


def skip_a_record(patch: Patch) -> None:
    """Broker 2 does not take in that replicas are in sync again."""
    original = MetadataQuorum._replay_slice

    def replay_slice(self: MetadataQuorum) -> None:
        with pytest.MonkeyPatch.context() as here:
            if self._settings.node_id == 2:
                here.setattr(quorum, "MetadataDelta", ForgetfulDelta)
            original(self)

    patch.setattr(MetadataQuorum, "_replay_slice", replay_slice)


class ForgetfulDelta(MetadataDelta):
    def replay(self, record: Any) -> None:
        if isinstance(record, PartitionChangeRecord) and record.isr and len(record.isr) == 3:
            return
        super().replay(record)


def leaders_share_an_epoch(patch: Patch) -> None:
    """The controller names another leader, and the epoch stays."""
    original = Partition.merge

    def merge(self: Partition, record: PartitionChangeRecord) -> Partition:
        merged = original(self, record)
        return merged if self.leader < 0 else merged._replace(leader_epoch=self.leader_epoch)

    patch.setattr(Partition, "merge", merge)


# -- leaders --------------------------------------------------------------------------------------------------------


def acknowledge_before_commit(patch: Patch) -> None:
    def wait_for(self: LeaderState, offset: int, waiter: Callable[[ErrorCode], None]) -> None:
        waiter(ErrorCode.NONE)

    patch.setattr(LeaderState, "wait_for", wait_for)


def committed_isr_only(patch: Patch) -> None:
    """The high watermark does not wait for those that a proposal under way would add."""
    propose, advance = LeaderState._propose, LeaderState._advance

    def propose_only(self: LeaderState, isr: frozenset[int]) -> Proposal:
        proposal = propose(self, isr)
        self.maximal_isr = self.isr
        return proposal

    def advance_with_isr(self: LeaderState, now_ms: int) -> bool:
        followers = self.followers
        self.followers = {broker_id: followers[broker_id] for broker_id in followers if broker_id in self.isr}
        try:
            return advance(self, now_ms)
        finally:
            self.followers = followers

    patch.setattr(LeaderState, "_propose", propose_only)
    patch.setattr(LeaderState, "_advance", advance_with_isr)


def shrink_before_commit(patch: Patch) -> None:
    """A follower that lags is not waited for, though the controller could still elect it."""
    original = LeaderState.shrink

    def shrink(self: LeaderState, now_ms: int) -> Proposal | None:
        proposal = original(self, now_ms)
        if proposal is not None:
            self.maximal_isr = self.isr - proposal.removed
            self._advance(now_ms)
        return proposal

    patch.setattr(LeaderState, "shrink", shrink)


def join_without_broker_epoch(patch: Patch) -> None:
    """Who fetched is taken for who is registered now."""

    def may_join(self: LeaderState, follower: Follower) -> bool:
        return self._registered(follower.broker_id) is not None

    patch.setattr(LeaderState, "_may_join", may_join)
    patch.setattr(LeaderState, "_epoch_of", lambda self, broker_id: NO_BROKER_EPOCH)


def high_watermark_goes_back(patch: Patch) -> None:
    """It is what the follower that fetched last has."""
    original = LeaderState.fetched

    def fetched(self: LeaderState, broker_id: int, offset: int, log_start: int, broker_epoch: int, now_ms: int) -> bool:
        moved = original(self, broker_id, offset, log_start, broker_epoch, now_ms)
        self.high_watermark = min(self.high_watermark, offset)
        return moved

    patch.setattr(LeaderState, "fetched", fetched)


def repeated_batches_are_new(patch: Patch) -> None:
    """Producers' sequence numbers are not looked at."""
    patch.setattr(ProducerStates, "check", lambda self, *arguments, **options: None)


# -- followers ------------------------------------------------------------------------------------------------------


def truncate_to_high_watermark(patch: Patch) -> None:
    """As Kafka did before KIP-101: a follower begins by cutting its log to its high watermark."""
    original = Replica.follow

    def follow(self: Replica, partition: Partition) -> bool:
        is_new = original(self, partition)
        if is_new and partition.leader >= 0:
            self._cut(self.high_watermark)
        return is_new

    patch.setattr(Replica, "follow", follow)


def fetch_ahead_of_disk(patch: Patch) -> None:
    """On a topic that flushes with every message, a follower tells what it has not flushed."""
    patch.setattr(Replica, "must_flush_first", property(lambda self: False))


def flush_nothing(patch: Patch) -> None:
    """Logs say that they are flushed, and are not."""
    patch.setattr(Log, "flush", lambda self: self._next_offset)


def append_whatever_the_epoch(patch: Patch) -> None:
    """Where the logs part is not looked for: a follower takes its own tail for the leader's."""
    patch.setattr(follower_fetch, "divergence", lambda log, fetch_offset, last_fetched_epoch: None)


def stamp_the_first_epoch(patch: Patch) -> None:
    """Leaders write under the same epoch, so that histories cannot be distinguished."""
    original = Log.append_as_leader

    def append_as_leader(
        self: Log, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int, *others: Any, **more: Any
    ) -> Appended:
        return original(self, batch, header, 0, now_ms, *others, **more)

    patch.setattr(Log, "append_as_leader", append_as_leader)


def commit_what_diverges(patch: Patch) -> None:
    """Who no longer leads takes all that it has for committed."""
    original = Replica.follow

    def follow(self: Replica, partition: Partition) -> bool:
        is_new = original(self, partition)
        if is_new:
            self.follower.high_watermark = self.log.log_end_offset
        return is_new

    patch.setattr(Replica, "follow", follow)


# -- damage ---------------------------------------------------------------------------------------------------------


def never_repair(patch: Patch) -> None:
    """What has rotted stays so."""
    patch.setattr(Repairs, "_note", lambda self, replica: None)


def serve_what_has_rotted(patch: Patch) -> None:
    patch.setattr(Segment, "verify", lambda self, data, *others, **options: len(data))


def restamp_what_is_old(patch: Patch) -> None:
    """A follower's first batch changes on its disk, in what no checksum covers: the leader epoch."""
    original = Replica.learned

    def learned(self: Replica, high_watermark: int, log_start: int) -> None:
        original(self, high_watermark, log_start)
        if high_watermark > 10:
            file = self.log._disk.system.open(self.log.segments[0].path)
            file.pwrite((99).to_bytes(4, "big"), 12)
            file.close()

    patch.setattr(Replica, "learned", learned)


# -- stories --------------------------------------------------------------------------------------------------------


class Flushing(ClusterStory):
    """On a topic that flushes with every message."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed)
        self.flushes = True


class SlowController(ClusterStory):
    """Followers come back while what the controller says takes its time."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed, rounds=2)

    async def misfortune(self) -> None:
        self.faults.delay(*(controller.name for controller in self.world.controllers))
        machine = self.chance.choice(self.world.brokers)
        self.faults.crash(machine)
        await self.pause()
        machine.start()
        await self.world.until(self.all_in_sync, "all replicas are in sync")


class LateProposal(ClusterStory):
    """A leader asks for a follower to be in sync; before that arrives, the follower loses its power and what it had
    not synced, and is registered again."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed, rounds=1)
        self.flushes = False

    async def misfortune(self) -> None:
        await self.everybody_back()
        leader, follower = self.leader_and_follower()
        network, controllers = self.world.loop.network, [each.name for each in self.world.controllers]
        self.faults.crash(follower)
        await self.world.until(lambda: len(self.first_partition.isr) < REPLICAS, "the follower is out of sync")
        self.faults.separate(leader, follower)
        follower.start()
        await self.world.until(lambda: self.is_active(follower, leader.image), "the leader knows that it is back")
        for controller in controllers:
            network.cut(leader.name, controller)
        network.mend(leader.name, follower.name)
        network.mend(follower.name, leader.name)
        await self.world.until(lambda: self.is_proposed(leader), "the follower has caught up")
        self.watch.doubt(follower)
        self.faults.crash(follower)  # first, so that the controller hears of it at once
        self.faults.lose_power(follower)
        self.faults.separate(leader, follower)
        follower.start()
        await self.world.until(lambda: self.is_active(follower, self.image), "it is registered again")
        for controller in controllers:
            network.mend(leader.name, controller)
        await asyncio.sleep(0.5)

    @property
    def image(self) -> MetadataImage:
        return max((each.image for each in self.world.controllers), key=lambda image: image.offset)

    @property
    def first_partition(self) -> Partition:
        partition = self.image.topics.partition(TOPIC, 0)
        assert partition is not None
        return partition

    def leader_and_follower(self) -> tuple[Machine, Machine]:
        leader = self.first_partition.leader
        follower = self.chance.choice([each for each in self.first_partition.replicas if each != leader])
        return self.world.machines[f"broker-{leader}"], self.world.machines[f"broker-{follower}"]

    def is_active(self, machine: Machine, image: MetadataImage) -> bool:
        """In the registration that it has now."""
        broker = image.brokers[int(machine.properties["node.id"])]
        return machine.broker is not None and broker.active and broker.epoch == machine.broker.epoch

    def is_proposed(self, machine: Machine) -> bool:
        replica = machine.replicas.get(TOPIC, 0)
        return replica is not None and replica.leader is not None and replica.leader.pending is not None


def never_say_where_replicas_are(patch: Patch) -> None:
    """As it was before brokers reported directories: the controller trusts any broker that returns, whatever it has."""

    def assign(self: DirectoryAssignments, topic_id: bytes, partition: int, directory_id: bytes) -> None:
        """No broker learns of it."""

    patch.setattr(DirectoryAssignments, "assign", assign)
    patch.setattr(leaders, "is_reserved_directory", lambda directory: False)


def trust_what_was_made_anew(patch: Patch) -> None:
    """A replica that is reported on a replaced disk keeps what it was trusted with."""

    def wanted(*, isr: Any, directories: Any, emptied: Any) -> Wanted:
        return Wanted(directories=directories)

    patch.setattr(directories, "Wanted", wanted)


class Variant(NamedTuple):
    sabotage: Callable[[Patch], None]
    checker: str  # it has to speak
    story: Callable[[SimulatedLoop, int], ClusterStory] = ClusterStory
    first: int = 0  # the seed to begin with


def only(*misfortunes: str, rounds: int = ROUNDS) -> Callable[[SimulatedLoop, int], ClusterStory]:
    """Those that bring it out."""
    return partial(ClusterStory, rounds=rounds, misfortunes=misfortunes)


VARIANTS = [
    Variant(vote_without_sync, "VotePersisted"),
    Variant(skip_a_record, "MetadataImagesEqual"),
    Variant(leaders_share_an_epoch, "OneLeaderPerEpoch"),
    Variant(acknowledge_before_commit, "Durability", only("isolate")),
    Variant(committed_isr_only, "CommittedIsInSync", SlowController, first=3),
    Variant(shrink_before_commit, "CommittedIsInSync", only("separate")),
    Variant(join_without_broker_epoch, "CommittedIsInSync", LateProposal),
    Variant(high_watermark_goes_back, "MonotonicHighWatermark"),
    Variant(repeated_batches_are_new, "ExactlyOnce"),
    Variant(truncate_to_high_watermark, "CommittedIsInSync", only("kill", "elect", "reassign"), first=6),
    Variant(fetch_ahead_of_disk, "CommittedIsOnDisks", Flushing),
    Variant(flush_nothing, "CommittedIsOnDisks", Flushing),
    Variant(stamp_the_first_epoch, "LogMatching", only("isolate")),
    Variant(commit_what_diverges, "CommittedPrefix", only("isolate")),
    Variant(serve_what_has_rotted, "NeverServedDamaged", only("rot")),
    Variant(never_say_where_replicas_are, "Durability", partial(DiskStory, rounds=2, misfortunes=["replace_alone"])),
    Variant(trust_what_was_made_anew, "Durability", partial(DiskStory, rounds=2, misfortunes=["replace_alone"])),
    Variant(restamp_what_is_old, "ReplicasAreEqual", only("jump", rounds=2)),
]
HEAVY = [
    Variant(append_whatever_the_epoch, "LogMatching", only("cut_one_way", "kill")),
    Variant(never_repair, "Repair", only("rot")),
]


def catch(variant: Variant, patch: Patch) -> None:
    variant.sabotage(patch)
    assert_caught(
        variant.checker,
        range(variant.first, variant.first + SEEDS),
        lambda seed: play_on_loop(seed, lambda loop: variant.story(loop, seed)).violation,
    )


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.sabotage.__name__)
def test_what_is_broken_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    catch(variant, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("variant", HEAVY, ids=lambda variant: variant.sabotage.__name__)
def test_what_shows_seldom_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    catch(variant, monkeypatch)


@pytest.mark.parametrize("story", [SlowController, LateProposal])
def test_what_is_not_broken_is_let_pass(story: type[ClusterStory]) -> None:
    for seed in range(2):
        assert play_on_loop(seed, lambda loop, seed=seed: story(loop, seed)).violation is None  # type: ignore[misc]
