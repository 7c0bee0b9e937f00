"""Story: random events for a controller: brokers join, leave, crash and lose disks; partitions change.

Partitions are created, moved and elected meanwhile. After every batch that the controller writes, the invariants below
hold, each by its name. Some steps leave an operation incomplete, as a controller does that dies; others continue from
an older image, as a controller does that lost its uncommitted end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest import mock

from penstock.controller import leaders
from penstock.controller.controller import Controller
from penstock.controller.elections import RECOVERING
from penstock.controller.result import Result, Unfinished
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE
from penstock.metadata.index import PartitionIndex, PartitionKey
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.metadata.serde import decode_record, encode_record
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import uuid_text
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import PartitionChangeRecord
from penstock.simulator.moments import Moments
from penstock.simulator.stories.controller_disks import Disks
from penstock.simulator.stories.controller_steps import BROKERS, create, random_step, take_over
from penstock.simulator.stories.controller_world import World, registration
from penstock.simulator.story import StoryResult
from penstock.simulator.twins.trace import Trace

EVENTS = (
    "elections", "ISR changes", "ELR changes", "reassignments", "process crashes", "clean stops", "disks lost",
    "disks failed", "replicas emptied", "controller failovers", "half an operation", "refused",
)  # fmt: skip
CRITICAL = {
    "while a partition is reassigned": ("kill", "stop", "lost disk", "failover"),
    "while a partition has no leader": ("kill", "stop", "lost disk", "failover"),
    "between two batches of an operation": ("kill", "stop", "lost disk", "failover"),
}
STEPS = 150
METADATA_VERSION = 30
Partitions = dict[PartitionKey, Partition]


MOMENTS: dict[str, Callable[[ControllerStory], bool]] = {
    "while a partition is reassigned": lambda story: any(each.reassigning for each in story.partitions().values()),
    "while a partition has no leader": lambda story: any(
        each.leader == NO_LEADER for each in story.partitions().values()
    ),
    "between two batches of an operation": lambda story: bool(story.interrupted),
}


class ControllerStory(World):
    """A world that checks every batch, with a model of how far each replica can be trusted."""

    def __init__(self, *, elr: bool, min_insync_replicas: int, unclean: bool, random: Random) -> None:
        self.before: Partitions = {}
        self.events: Counter[str] = Counter()
        self.moments: Moments[ControllerStory] = Moments(MOMENTS)
        self.trace = Trace(lambda: self.offset)
        self.elr = elr
        self.random = random
        # The life that a broker's data is in (a crash begins another), and the life in which it became in sync.
        self.lives = dict.fromkeys(range(1, BROKERS + 1), 0)
        self.next_lives: dict[int, int] = {}
        self.joined: dict[tuple[PartitionKey, int], int] = {}
        self.led: dict[tuple[PartitionKey, int], int] = {}
        self.factors: dict[PartitionKey, set[int]] = {}
        # Where replicas really are, and how often each had lost all its data when it became in sync.
        self.disks = {broker_id: Disks(broker_id, random.choice((1, 2, 3))) for broker_id in range(1, BROKERS + 1)}
        self.joined_emptied: dict[tuple[PartitionKey, int], int] = {}
        # Brokers whose process runs and has opened its replicas.
        self.loaded: set[int] = set()
        self.incarnations = dict.fromkeys(range(1, BROKERS + 1), 0)
        # What the current step allows.
        self.proposed: dict[PartitionKey, frozenset[int]] = {}
        self.unclean_allowed = unclean
        self.unclean_asked = False
        self.interrupted: bool = False
        properties = {
            "min.insync.replicas": str(min_insync_replicas),
            "unclean.leader.election.enable": str(unclean).lower(),
        }
        super().__init__(properties, brokers=0, elr=elr)
        for broker_id in range(1, BROKERS + 1):
            self.restart(broker_id, clean=False, new_disk=False)
            self.unfence(broker_id)

    # -- the model -----------------------------------------------------------------------------------------------------

    def commit(self, records: list[Message]) -> None:
        changed = Counter(
            (each.topic_id, each.partition_id) for each in records if isinstance(each, PartitionChangeRecord)
        )
        assert all(count == 1 for count in changed.values()), f"OneChangeOfAPartition {changed}"
        super().commit(records)
        for record in records:
            self.trace.add(type(record).__name__, encode_record(record, METADATA_VERSION))
        if records:
            for broker_id, life in self.next_lives.items():
                broker = self.image.brokers.get(broker_id)
                if broker is not None and broker.incarnation_id == self.incarnation_id(broker_id):
                    self.lives[broker_id] = life
            for broker_id in self.loaded:
                self.disks[broker_id].follow(self.held(broker_id))
            self.check()

    def epoch(self, broker_id: int) -> int:
        if broker_id not in self.image.brokers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        return super().epoch(broker_id)

    def incarnation_id(self, broker_id: int) -> bytes:
        return registration(broker_id, incarnation=self.incarnations[broker_id]).incarnation_id

    def partitions(self) -> Partitions:
        return {
            (topic.topic_id, partition_id): partition
            for topic in self.image.topics
            for partition_id, partition in topic.partitions.items()
        }

    def held(self, broker_id: int) -> Partitions:
        return {key: partition for key, partition in self.partitions().items() if broker_id in partition.replicas}

    def check(self) -> None:
        now = self.partitions()
        for key, partition in now.items():
            name = f"{uuid_text(key[0])}-{key[1]}: {self.before.get(key)} -> {partition}"
            self.well_formed(partition, name)
            self.epochs(key, partition, name)
            self.trusted(key, partition, name)
            self.never_elect_an_empty_replica(key, partition, name)
            self.somebody_knows(key, partition, name)
            self.replication_factor_kept(key, partition, name)
            self.count(self.before.get(key), partition)
        self.before = now
        self.index_is_that_of_the_image()

    def count(self, old: Partition | None, new: Partition) -> None:
        if old is not None:
            self.events["elections"] += new.leader_epoch > old.leader_epoch
            self.events["ISR changes"] += new.isr != old.isr
            self.events["ELR changes"] += new.elr != old.elr
            self.events["reassignments"] += new.reassigning and not old.reassigning

    def well_formed(self, partition: Partition, name: str) -> None:
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        assert len(replicas) == len(partition.replicas) == len(partition.directories) > 0, f"ReplicasDistinct {name}"
        assert isr <= replicas and len(isr) == len(partition.isr), f"IsrSubsetOfReplicas {name}"
        assert elr <= replicas and len(elr) == len(partition.elr), f"ElrSubsetOfReplicas {name}"
        assert not isr & elr, f"ElrDisjointFromIsr {name}"
        assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas, f"Reassigning {name}"
        may_be_empty = self.elr or any(self.disks[replica].doubtful for replica in replicas)
        assert isr or may_be_empty, f"IsrNeverEmptyWithoutElr {name}"
        assert self.elr or not (elr or partition.last_known_elr), f"NoElrWithoutFeature {name}"
        if partition.leader == NO_LEADER:
            last_known = partition.last_known_elr
            assert len(last_known) <= 1 and replicas >= set(last_known), f"OneLastKnownLeader {name}"
            return
        assert partition.leader in isr, f"LeaderInIsr {name}"
        assert partition.last_known_elr == (), f"LastKnownOnlyWithoutLeader {name}"
        leader = self.image.brokers.get(partition.leader)
        assert leader is not None and not leader.fenced, f"LeaderNotFenced {name}"
        assert leader.has_online(partition.directory_of(partition.leader)), f"LeaderHasItsDirectory {name}"
        if partition.leader_recovery_state == RECOVERING:
            assert isr == {partition.leader}, f"RecoversAlone {name}"

    def epochs(self, key: PartitionKey, partition: Partition, name: str) -> None:
        old = self.before.get(key)
        if old is not None and old != partition:
            assert partition.partition_epoch > old.partition_epoch, f"PartitionEpochMonotonic {name}"
            assert partition.leader_epoch >= old.leader_epoch, f"LeaderEpochMonotonic {name}"
            if partition.leader != old.leader or not set(partition.replicas) >= set(old.replicas):
                assert partition.leader_epoch > old.leader_epoch, f"NewLeaderNewEpoch {name}"
        assert self.led.setdefault((key, partition.leader_epoch), partition.leader) == partition.leader, (
            f"OneLeaderPerEpoch {name}"
        )

    def trusted(self, key: PartitionKey, partition: Partition, name: str) -> None:
        """No replica is in sync, eligible or leader because of an incarnation that no longer exists."""
        old = self.before.get(key)
        proposed = self.proposed.get(key, frozenset()) if old is not None else frozenset(partition.replicas)
        known = set() if old is None else {*old.isr, *old.elr}
        for member in {*partition.isr, *partition.elr}:
            if member in proposed:
                self.joined[key, member] = self.lives[member]
                self.joined_emptied[key, member] = self.disks[member].emptied[key]
            elif member not in known:
                # Others that were in sync or eligible have just crashed, or there were none.
                last_known = old is not None and not partition.elr and old.last_known_elr == (member,)
                allowed = last_known or self.unclean_allowed or self.unclean_asked
                # Without the feature one replica must be in sync, if only in name.
                in_name_only = not self.elr and partition.leader == NO_LEADER
                assert allowed and (member == partition.leader or in_name_only), f"CleanUnlessAllowed {name}"
                assert partition.leader_recovery_state == RECOVERING, f"UncleanRecovers {name}"
                self.joined[key, member] = self.lives[member]
                self.joined_emptied[key, member] = self.disks[member].emptied[key]
            if self.elr:
                assert self.joined[key, member] == self.lives[member], f"NoStaleIncarnation {name}"

    def never_elect_an_empty_replica(self, key: PartitionKey, partition: Partition, name: str) -> None:
        """No replica that could be elected cleanly has lost all its data since it became in sync, with ELR or
        without."""
        for member in {*partition.isr, *partition.elr}:
            broker = self.image.brokers.get(member)
            if broker is not None and broker.has_online(partition.directory_of(member)):
                assert self.joined_emptied[key, member] == self.disks[member].emptied[key], (
                    f"NeverElectAnEmptyReplica {name}: {member}"
                )

    def somebody_knows(self, key: PartitionKey, partition: Partition, name: str) -> None:
        """While no replica is in sync, those that have the last committed records stay replicas, and one may lead when
        it returns, unless the controller may consider it empty."""
        old = self.before.get(key)
        knowing = set() if old is None else {*(old.isr or old.elr or old.last_known_elr)}
        if partition.isr or not knowing or self.unclean_asked:
            return
        assert not knowing.isdisjoint(partition.replicas), f"SomebodyKnows {name}"
        if any(not self.disks[replica].doubtful for replica in knowing):
            assert partition.elr or partition.last_known_elr, f"SomebodyKnows {name}"

    def replication_factor_kept(self, key: PartitionKey, partition: Partition, name: str) -> None:
        allowed = self.factors.setdefault(key, {len(partition.replicas)})
        if not partition.reassigning:
            assert len(partition.replicas) in allowed, f"ReplicationFactorKept {name}"
            self.factors[key] = {len(partition.replicas)}

    def index_is_that_of_the_image(self) -> None:
        mine, fresh = self.controller.index, PartitionIndex.of(self.image.topics)
        for broker_id in range(BROKERS + 1):
            assert set(mine.in_sync(broker_id)) == set(fresh.in_sync(broker_id)), "IndexEqualsImage"
            assert set(mine.eligible(broker_id)) == set(fresh.eligible(broker_id)), "IndexEqualsImage"
            assert mine.leads(broker_id) == fresh.leads(broker_id), "IndexEqualsImage"
        for table in ("leaderless", "not_preferred", "reassigning"):
            assert set(getattr(mine, table)) == set(getattr(fresh, table)), "IndexEqualsImage"

    def available_where_possible(self) -> None:
        """No partition that could have a leader is without one."""
        for key in self.controller.index.leaderless:
            topic = self.image.topics.ids[key[0]]
            partition = topic.partitions[key[1]]
            candidates = partition.isr or partition.elr or (partition.last_known_elr if self.elr else ())
            knowing = {*partition.isr, *partition.elr, *partition.last_known_elr}
            is_awaited = not knowing.isdisjoint(self.controller.heartbeats.awaited)
            if self.unclean_allowed and not partition.reassigning and not is_awaited:
                candidates = partition.replicas
            for replica in candidates:
                broker = self.image.brokers.get(replica)
                usable = broker is not None and broker.active and broker.has_online(partition.directory_of(replica))
                assert not usable, f"AvailableWherePossible {topic.name}-{key[1]}: {partition}, {replica} could lead"

    # -- steps ---------------------------------------------------------------------------------------------------------

    def once(self, operation: Callable[[Controller], Result[Any]], *, interrupt: bool) -> None:
        """The whole operation, or only its first batch."""
        if not interrupt:
            self.run(operation)
            return
        result = operation(self.controller)
        self.commit(result.records)
        if isinstance(result, Unfinished):
            self.interrupted = True
            self.events["half an operation"] += 1

    def restart(
        self, broker_id: int, *, clean: bool, new_disk: bool, disk_fails: bool = False, interrupt: bool = False
    ) -> None:
        existing = self.image.brokers.get(broker_id)
        disks = self.disks[broker_id]
        # After a crash it cannot claim a clean stop, though the crash may not be recorded yet.
        clean = clean and self.next_lives.get(broker_id, 0) <= self.lives[broker_id]
        self.incarnations[broker_id] += 1
        self.loaded.discard(broker_id)
        self.events["clean stops" if clean else "process crashes"] += 1
        self.moments.strike("lost disk" if new_disk else "stop" if clean else "kill", self)
        if new_disk:
            disks.replace(self.random)
            self.events["disks lost"] += 1
        if self.random.random() < 0.7:
            disks.failed.clear()  # it was the cable
        if disk_fails and disks.fail(self.random) is not None:
            self.events["disks failed"] += 1
        request = registration(broker_id, incarnation=self.incarnations[broker_id], rack=str(broker_id % 2))
        request.log_dirs = disks.online
        if clean and existing is not None:
            request.previous_broker_epoch = existing.epoch
        if not clean or existing is None:
            self.next_lives[broker_id] = max(self.lives[broker_id], self.next_lives.get(broker_id, 0)) + 1
        self.once(lambda controller: controller.register_broker(request), interrupt=interrupt)
        registered = self.image.brokers.get(broker_id)
        if registered is not None and registered.incarnation_id == self.incarnation_id(broker_id):
            before = disks.emptied.total()
            disks.load(self.held(broker_id))
            self.events["replicas emptied"] += disks.emptied.total() - before
            self.loaded.add(broker_id)
            self.check()

    def report(self, broker_id: int) -> None:
        """The broker reports where its replicas are, if the metadata says otherwise."""
        if broker_id not in self.loaded:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        for (topic_id, partition_id), home in list(self.disks[broker_id].unreported(self.held(broker_id))):
            name = self.image.topics.ids[topic_id].name
            self.do(self.controller.assign_replicas_to_dirs(self.located(broker_id, name, home, partition_id)))

    def fail_disk(self, broker_id: int) -> None:
        if broker_id in self.loaded and self.disks[broker_id].fail(self.random) is not None:
            self.events["disks failed"] += 1

    @contextmanager
    def proposing(self, key: PartitionKey, isr: frozenset[int]) -> Iterator[None]:
        self.proposed = {key: isr}
        yield
        self.proposed = {}


def play(seed: int, steps: int = STEPS) -> StoryResult:
    random = Random(seed)
    with mock.patch.object(leaders, "MAX_CHANGES_PER_BATCH", random.choice((1, 2, 500))):
        story = ControllerStory(
            elr=random.random() < 0.75,
            min_insync_replicas=random.randint(1, 3),
            unclean=random.random() < 0.2,
            random=random,
        )
        violation: str | None = None
        try:
            live(story, random, steps)
        except AssertionError as error:
            violation = str(error)
    recent = [str(event) for event in story.trace.recent]
    return StoryResult(violation, story.events, story.trace.digest(), recent, frozenset(story.moments.pairs))


def live(story: ControllerStory, random: Random, steps: int) -> None:
    create("a", 3, 3)(story)
    create("b", 2, 1)(story)
    for _ in range(steps):
        step = random_step(random)
        try:
            step(story)
        except KafkaError:
            story.unclean_asked = False
            story.events["refused"] += 1
        if not story.interrupted:
            story.available_where_possible()
    take_over(story)
    story.available_where_possible()
    replays_to_the_same_image(story)


def replays_to_the_same_image(story: ControllerStory) -> None:
    replayed = EMPTY_IMAGE
    for batch in story.batches:
        delta = MetadataDelta(replayed)
        delta.replay_all([decode_record(encode_record(record, METADATA_VERSION)) for record in batch])
        replayed = delta.apply(0, 0, 0)
    assert replayed.same_content(story.image), "ReplayEqualsImage"
