"""A cluster's life at random: brokers come, go, crash and lose disks, while partitions are created, moved and elected.

After every batch that the controller writes, the invariants below hold, each by its name. Some steps leave an
operation half-way, as a controller does that dies; others begin again from an older image, as one does that lost its
uncommitted end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest import mock

from penstock.controller import leaders
from penstock.controller.controller import Controller
from penstock.controller.elections import RECOVERED, RECOVERING, Election
from penstock.controller.result import Result, Unfinished
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE
from penstock.metadata.index import PartitionIndex, PartitionKey
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.metadata.serde import decode_record, encode_record
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import uuid_text
from penstock.protocol.declaration import Message
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest
from penstock.testing.simulation.controller_world import World, directory, registration

BROKERS = 4
NAMES = ("a", "b", "c")
Partitions = dict[PartitionKey, Partition]


class Story(World):
    """A world that checks every batch, with a model of what each replica can be trusted with."""

    def __init__(self, *, elr: bool, min_insync_replicas: int, unclean: bool) -> None:
        self.before: Partitions = {}
        self.elr = elr
        # Which life of its data a broker is in (a crash or a new disk begins another), and in which life it was when it
        # came to be in sync.
        self.lives = dict.fromkeys(range(1, BROKERS + 1), 0)
        self.next_lives: dict[int, int] = {}
        self.joined: dict[tuple[PartitionKey, int], int] = {}
        self.led: dict[tuple[PartitionKey, int], int] = {}
        self.factors: dict[PartitionKey, set[int]] = {}
        self.disks = dict.fromkeys(range(1, BROKERS + 1), 0)
        self.incarnations = dict.fromkeys(range(1, BROKERS + 1), 0)
        # What the step under way allows.
        self.proposed: dict[PartitionKey, frozenset[int]] = {}
        self.unclean_allowed = unclean
        self.unclean_asked = False
        self.interrupted = False
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
        super().commit(records)
        if records:
            for broker_id, life in self.next_lives.items():
                broker = self.image.brokers.get(broker_id)
                if broker is not None and broker.incarnation_id == self.incarnation_id(broker_id):
                    self.lives[broker_id] = life
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

    def check(self) -> None:
        now = self.partitions()
        for key, partition in now.items():
            name = f"{uuid_text(key[0])}-{key[1]}: {self.before.get(key)} -> {partition}"
            self.well_formed(partition, name)
            self.epochs(key, partition, name)
            self.trusted(key, partition, name)
            self.replication_factor_kept(key, partition, name)
        self.before = now
        self.index_is_that_of_the_image()

    def well_formed(self, partition: Partition, name: str) -> None:
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        assert len(replicas) == len(partition.replicas) == len(partition.directories) > 0, f"ReplicasDistinct {name}"
        assert isr <= replicas and len(isr) == len(partition.isr), f"IsrSubsetOfReplicas {name}"
        assert elr <= replicas and len(elr) == len(partition.elr), f"ElrSubsetOfReplicas {name}"
        assert not isr & elr, f"ElrDisjointFromIsr {name}"
        assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas, f"Reassigning {name}"
        assert isr or self.elr, f"IsrNeverEmptyWithoutElr {name}"
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
        """Nobody is in sync, eligible or leader on the merits of an incarnation that is no more."""
        old = self.before.get(key)
        proposed = self.proposed.get(key, frozenset()) if old is not None else frozenset(partition.replicas)
        known = set() if old is None else {*old.isr, *old.elr}
        for member in {*partition.isr, *partition.elr}:
            if member in proposed:
                self.joined[key, member] = self.lives[member]
            elif member not in known:
                # Others that were in sync or eligible have just crashed, or there were none.
                last_known = old is not None and not partition.elr and old.last_known_elr == (member,)
                allowed = last_known or self.unclean_allowed or self.unclean_asked
                # Without the feature somebody must be in sync, if only in name.
                in_name_only = not self.elr and partition.leader == NO_LEADER
                assert allowed and (member == partition.leader or in_name_only), f"CleanUnlessAllowed {name}"
                assert partition.leader_recovery_state == RECOVERING, f"UncleanRecovers {name}"
                self.joined[key, member] = self.lives[member]
            if self.elr:
                assert self.joined[key, member] == self.lives[member], f"NoStaleIncarnation {name}"

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
        """Nobody goes without a leader for whom there is one."""
        for key in self.controller.index.leaderless:
            topic = self.image.topics.ids[key[0]]
            partition = topic.partitions[key[1]]
            candidates = partition.isr or partition.elr or (partition.last_known_elr if self.elr else ())
            if self.unclean_allowed and not partition.reassigning:
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
        self.interrupted |= isinstance(result, Unfinished)

    def restart(self, broker_id: int, *, clean: bool, new_disk: bool, interrupt: bool = False) -> None:
        existing = self.image.brokers.get(broker_id)
        # Once it has crashed it cannot claim a clean stop, though the crash may not be written down yet.
        clean = clean and self.next_lives.get(broker_id, 0) <= self.lives[broker_id]
        self.incarnations[broker_id] += 1
        self.disks[broker_id] += new_disk
        request = registration(
            broker_id, incarnation=self.incarnations[broker_id], disk=self.disks[broker_id], rack=str(broker_id % 2)
        )
        if clean and existing is not None:
            request.previous_broker_epoch = existing.epoch
        if not clean or new_disk or existing is None:
            self.next_lives[broker_id] = max(self.lives[broker_id], self.next_lives.get(broker_id, 0)) + 1
        self.once(lambda controller: controller.register_broker(request), interrupt=interrupt)

    @contextmanager
    def proposing(self, key: PartitionKey, isr: frozenset[int]) -> Iterator[None]:
        self.proposed = {key: isr}
        yield
        self.proposed = {}


Step = Callable[[Story], None]


def restart(broker_id: int, clean: bool, new_disk: bool, interrupt: bool) -> Step:
    return lambda story: story.restart(broker_id, clean=clean, new_disk=new_disk, interrupt=interrupt)


def fence(broker_id: int, interrupt: bool) -> Step:
    return lambda story: story.once(
        lambda controller: controller.fence_broker(broker_id, story.epoch(broker_id)), interrupt=interrupt
    )


def unfence(broker_id: int, interrupt: bool) -> Step:
    return lambda story: story.once(
        lambda controller: controller.unfence_broker(broker_id, story.epoch(broker_id)), interrupt=interrupt
    )


def heartbeat(broker_id: int, want_fence: bool, want_shut_down: bool, behind: int, interrupt: bool) -> Step:
    def step(story: Story) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=story.epoch(broker_id),
            current_metadata_offset=story.offset - behind,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        story.once(lambda controller: controller.broker_heartbeat(request, 0), interrupt=interrupt)

    return step


def unregister(broker_id: int) -> Step:
    request = UnregisterBrokerRequest(broker_id=broker_id)
    return lambda story: story.run(lambda controller: controller.unregister_broker(request)) and None


def some_partition(story: Story, number: int) -> tuple[str, int]:
    places = [(topic.name, partition_id) for topic in story.image.topics for partition_id in topic.partitions]
    if not places:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return places[number % len(places)]


def alter(number: int, members: frozenset[int], stale: bool, recovered: bool) -> Step:
    def step(story: Story) -> None:
        name, partition_id = some_partition(story, number)
        partition = story.partition(name, partition_id)
        isr = [replica for replica in partition.replicas if replica in members or replica == partition.leader]
        state = RECOVERED if recovered else partition.leader_recovery_state
        topic_id = story.image.topics.id_of(name)
        assert topic_id is not None
        with story.proposing((topic_id, partition_id), frozenset() if stale else frozenset(isr)):
            story.alter(
                name,
                isr,
                partition_id,
                leader_recovery_state=state,
                partition_epoch=partition.partition_epoch - stale,
            )

    return step


def reassign(number: int, replicas: list[int] | None, keep: bool) -> Step:
    def step(story: Story) -> None:
        name, partition_id = some_partition(story, number)
        partition = story.partition(name, partition_id)
        topic_id = story.image.topics.id_of(name)
        assert topic_id is not None
        original = len(partition.replicas) - len(partition.adding_replicas)
        before = story.factors[topic_id, partition_id]
        story.factors[topic_id, partition_id] = {original} if replicas is None else {original, len(replicas)}
        story.unclean_asked = replicas is None and story.unclean_allowed
        result = story.reassign(name, replicas, partition_id, allow_replication_factor_change=not keep)
        story.unclean_asked = False
        if result.error_code:
            story.factors[topic_id, partition_id] = before

    return step


def elect(unclean: bool) -> Step:
    def step(story: Story) -> None:
        story.unclean_asked = unclean
        story.elect(Election.UNCLEAN if unclean else Election.PREFERRED)
        story.unclean_asked = False

    return step


def balance(story: Story) -> None:
    story.do(story.controller.balance_leaders())


def elect_unclean(story: Story) -> None:
    story.do(story.controller.elect_unclean_leaders())


def create(name: str, partitions: int, factor: int) -> Step:
    return lambda story: story.create(name, partitions, factor) and None


def add_partitions(name: str, count: int) -> Step:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
    return lambda story: story.do(story.controller.create_partitions(request)) and None


def delete(name: str) -> Step:
    return lambda story: story.delete(name)


def minimum(name: str | None, value: int) -> Step:
    def step(story: Story) -> None:
        if name is None:
            story.set_broker_config("", "min.insync.replicas", str(value))
        else:
            story.set_config(name, "min.insync.replicas", str(value))

    return step


def locate(number: int, broker_id: int) -> Step:
    def step(story: Story) -> None:
        name, partition_id = some_partition(story, number)
        where = directory(broker_id, story.disks[broker_id])
        story.do(story.controller.assign_replicas_to_dirs(story.located(broker_id, name, where, partition_id)))

    return step


def take_over(story: Story) -> None:
    """Another controller: what was soft is gone."""
    story.controller.reset(story.image)
    story.controller.heartbeats.activate(story.image.brokers, 0)
    story.run(lambda controller: controller.activate([]))
    story.interrupted = False


def random_step(random: Random) -> Step:
    """Brokers fail and return more often than anything else happens, as what is hard comes of that."""

    def rarely() -> bool:
        return random.random() < 0.15

    broker, number = random.randint(1, BROKERS), random.randrange(20)
    name = random.choice(NAMES)
    everybody = frozenset(range(1, BROKERS + 1))
    replicas = random.sample(range(1, BROKERS + 1), random.randint(1, 3))
    makers: list[tuple[int, Callable[[], Step]]] = [
        (8, lambda: restart(broker, random.random() < 0.5, rarely(), rarely())),
        (8, lambda: fence(broker, rarely())),
        (12, lambda: unfence(broker, rarely())),
        (6, lambda: heartbeat(broker, rarely(), rarely(), random.choice((0, 0, 5)), rarely())),
        (1, lambda: unregister(broker)),
        (2, lambda: take_over),
        (6, lambda: alter(number, frozenset(random.sample(sorted(everybody), 2)), rarely(), True)),
        (10, lambda: alter(number, everybody, False, random.random() < 0.8)),
        (5, lambda: reassign(number, None if random.random() < 0.25 else replicas, rarely())),
        (3, lambda: elect(rarely())),
        (2, lambda: random.choice((balance, elect_unclean))),
        (1, lambda: create(name, random.randint(1, 4), random.randint(1, 3))),
        (1, lambda: random.choice((add_partitions(name, random.randint(1, 6)), delete(name)))),
        (2, lambda: minimum(random.choice((None, name)), random.randint(1, 3))),
        (5, lambda: locate(number, broker)),
    ]
    weights, choices = zip(*makers, strict=True)
    maker: Callable[[], Step] = random.choices(choices, weights)[0]
    return maker()


def live(seed: int, steps: int) -> Story:
    random = Random(seed)
    with mock.patch.object(leaders, "MAX_CHANGES_PER_BATCH", random.choice((1, 2, 500))):
        story = Story(
            elr=random.random() < 0.75, min_insync_replicas=random.randint(1, 3), unclean=random.random() < 0.2
        )
        create("a", 3, 3)(story)
        create("b", 2, 1)(story)
        for _ in range(steps):
            step = random_step(random)
            try:
                step(story)
            except KafkaError:
                story.unclean_asked = False
            if not story.interrupted:
                story.available_where_possible()
        take_over(story)
        story.available_where_possible()
        replays_to_the_same_image(story)
    return story


def replays_to_the_same_image(story: Story) -> None:
    replayed = EMPTY_IMAGE
    for batch in story.batches:
        delta = MetadataDelta(replayed)
        delta.replay_all([decode_record(encode_record(record, 30)) for record in batch])
        replayed = delta.apply(0, 0, 0)
    assert replayed.same_content(story.image), "ReplayEqualsImage"
