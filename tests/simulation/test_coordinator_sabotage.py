"""Every checker of the simulated coordinators catches someone: the real code, broken on purpose, one law at a time.

A variant is played with seed after seed until the checker named with it speaks. What is broken is broken on all
brokers.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from penstock.broker.apis import produce
from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.loading import Load
from penstock.broker.coordinators.partition import CoordinatorPartition
from penstock.broker.partitions.replica import Replica
from penstock.coordinator.decision import Decision
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.departures import Departures
from penstock.groups.membership import Membership
from penstock.groups.offset_commit import OffsetCommits
from penstock.groups.offset_deletion import OffsetDeletion
from penstock.groups.offset_store import OffsetStore
from penstock.groups.shard import GroupShard
from penstock.groups.state import GroupState
from penstock.groups.timers import TimerKey
from penstock.io.files import Buffer
from penstock.log.log import Appended, Log
from penstock.log.recovery import replay_batch
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.protocol.declaration import Message
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.records import validation
from penstock.records.batch import BatchHeader
from penstock.replication.partition import LeaderState
from penstock.replication.producers import ProducerStates
from penstock.simulator.program import play_on_loop
from penstock.simulator.stories import coordinator_clients
from penstock.simulator.stories.cluster_story import TOPIC
from penstock.simulator.stories.cluster_world import Machine
from penstock.simulator.stories.coordinator_clients import GROUP, TRANSACTION, Place
from penstock.simulator.stories.coordinator_groups import ConsumerMember
from penstock.simulator.stories.coordinator_story import PROPERTIES, CoordinatorStory
from penstock.simulator.twins.loop import SimulatedLoop
from penstock.transactions import initializing, joining
from penstock.transactions import shard as transaction_shard
from penstock.transactions.markers import MarkerOutbox, Markers
from penstock.transactions.shard import TransactionShard
from penstock.transactions.state import Identity, Status, Transaction
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = 20


# -- the runtime ----------------------------------------------------------------------------------------------------


def reply_before_commit(patch: Patch) -> None:
    patch.setattr(CoordinatorPartition, "_owe", lambda self, replies: self._send(replies))


def load_nothing(patch: Patch) -> None:
    _load(patch, lambda load, replica: setattr(load, "_offset", load._end))


def load_from_the_high_watermark(patch: Patch) -> None:
    _load(patch, lambda load, replica: setattr(load, "_offset", max(load._offset, replica.high_watermark)))


def load_to_the_high_watermark(patch: Patch) -> None:
    _load(patch, lambda load, replica: setattr(load, "_end", replica.high_watermark))


def pass_over_markers_when_loading(patch: Patch) -> None:
    """What was pending when they were written stays so."""
    _load(patch, lambda load, replica: setattr(load, "_end_transaction", None))


def _load(patch: Patch, change: Callable[[Any, Replica], None]) -> None:
    original = Load.__init__

    def init(self: Any, coordinator: Any, replica: Replica, *others: Any) -> None:
        original(self, coordinator, replica, *others)
        change(self, replica)

    patch.setattr(Load, "__init__", init)


def pass_over_tombstones_when_loading(patch: Patch) -> None:
    original = GroupState.replay

    def replay(self: GroupState, key: Message, value: Message | None, *others: Any) -> None:
        if value is not None or self._is_loaded:
            original(self, key, value, *others)

    patch.setattr(GroupState, "replay", replay)


def keep_shards_between_epochs(patch: Patch) -> None:
    """Who leads again goes on with what it knew when it led before."""
    original = Coordinator.replica_changed

    def replica_changed(self: Coordinator[Any], replica: Replica) -> None:
        if replica.topic_partition.partition not in self.partitions:
            original(self, replica)

    def check_writable(self: CoordinatorPartition[Any]) -> LeaderState:
        leader = self.replica.leader
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.leader_epoch = leader.leader_epoch
        return leader

    patch.setattr(Coordinator, "replica_changed", replica_changed)
    patch.setattr(CoordinatorPartition, "_check_writable", check_writable)


def keep_shards_that_are_ahead(patch: Patch) -> None:
    """An append fails, and the shard goes on as if it had not."""

    def append_failed(self: CoordinatorPartition[Any], error: KafkaError) -> None:
        end = self.replica.log.log_end_offset
        while self.owed and self.owed[-1].offset > end:
            self._refuse(self.owed.pop().replies, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    patch.setattr(CoordinatorPartition, "_append_failed", append_failed)


def forget_whom_to_answer(patch: Patch) -> None:
    """Who resigns does not tell those that wait for a commit."""
    original = CoordinatorPartition.resign

    def resign(self: CoordinatorPartition[Any]) -> None:
        self.owed.clear()
        original(self)

    patch.setattr(CoordinatorPartition, "resign", resign)
    patch.setattr(coordinator_clients, "ENDLESS_RATE", 1.0)


def leave_joins_parked(patch: Patch) -> None:
    """Nor those that wait for others to join."""
    patch.setattr(GroupShard, "resigned", lambda self: [])
    patch.setattr(coordinator_clients, "ENDLESS_RATE", 1.0)


# -- groups ---------------------------------------------------------------------------------------------------------


def answer_while_out_of_touch(patch: Patch) -> None:
    """A coordinator goes by what it knows, although another may have taken over."""
    patch.setattr(CoordinatorPartition, "may_be_replaced", False)


def let_anybody_commit(patch: Patch) -> None:
    patch.setattr(OffsetCommits, "_check", lambda self, group_id, member, now_ms: None)


def give_what_others_have(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "owner_of", lambda self, topic_id, partition: None)


def stay_in_one_generation(patch: Patch) -> None:
    original = ClassicGroup.next_generation

    def next_generation(self: ClassicGroup, now_ms: int) -> None:
        original(self, now_ms)
        self.generation = 1

    patch.setattr(ClassicGroup, "next_generation", next_generation)


def keep_the_dead(patch: Patch) -> None:
    """Sessions end, and nothing follows from it."""
    patch.setattr(Departures, "fence", lambda self, group, members, now_ms, out: None)


def forget_sessions_when_loading(patch: Patch) -> None:
    original = GroupShard.loaded

    def loaded(self: GroupShard, now_ms: int) -> Decision:
        decision = original(self, now_ms)
        for group in self.state.consumer.values():
            for member_id in group.members:
                self.state.timers.cancel(TimerKey("session", group.group_id, member_id))
        return decision

    patch.setattr(GroupShard, "loaded", loaded)


def end_sessions_early(patch: Patch) -> None:
    original = Membership.watch

    def watch(self: Membership, group_id: str, before: Any, member: Any, now_ms: int) -> None:
        original(self, group_id, before, member, now_ms - 5500)

    patch.setattr(Membership, "watch", watch)


def delete_groups_without_their_offsets(patch: Patch) -> None:
    patch.setattr(OffsetDeletion, "delete_all", lambda self, group_id, records: None)


# -- transactions ---------------------------------------------------------------------------------------------------


def show_offsets_before_the_marker(patch: Patch) -> None:
    original = OffsetStore.replay

    def replay(self: OffsetStore, group_id: str, topic: str, partition: int, value: Any, producer_id: int) -> None:
        original(self, group_id, topic, partition, value, -1)

    patch.setattr(OffsetStore, "replay", replay)


def ignore_open_transactions(patch: Patch) -> None:
    """The last stable offset is the high watermark."""
    patch.setattr(ProducerStates, "last_stable_offset", lambda self, high_watermark: high_watermark)


def abort_what_was_committed(patch: Patch) -> None:
    _mark(patch, committed=False)


def commit_what_was_aborted(patch: Patch) -> None:
    _mark(patch, committed=True)


def _mark(patch: Patch, *, committed: bool) -> None:
    original = MarkerOutbox._attempt_at

    def attempt_at(self: MarkerOutbox, *arguments: Any) -> Markers:
        return original(self, *arguments)._replace(committed=committed)

    patch.setattr(MarkerOutbox, "_attempt_at", attempt_at)


def commit_no_offsets(patch: Patch) -> None:
    """A marker in `__consumer_offsets` decides nothing."""
    patch.setattr(OffsetStore, "end_transaction", lambda self, producer_id, committed: None)


def verify_everything(patch: Patch) -> None:
    """The coordinator confirms every partition that a producer writes to."""
    patch.setattr(transaction_shard, "verify", lambda current, shown, partition: ErrorCode.NONE)


def verify_no_rewritten_batch(patch: Patch) -> None:
    """What was verified when a batch came is not asked again when its records have been rewritten."""
    rewrite, append, check = validation.rewrite_produced, Replica.append, ProducerStates.check_verified
    rewritten: list[bytearray] = []
    believed: list[bool] = []

    def rewrite_produced(*arguments: Any, **options: Any) -> bytearray:
        rewritten.append(rewrite(*arguments, **options))
        return rewritten[-1]

    def append_believed(self: Replica, batch: memoryview, *others: Any, **options: Any) -> Appended:
        believed.append(any(batch.obj is each for each in rewritten))
        try:
            return append(self, batch, *others, **options)
        finally:
            believed.pop()

    def check_verified(self: ProducerStates, *arguments: Any) -> None:
        if not believed[-1]:
            check(self, *arguments)

    patch.setattr(produce, "rewrite_produced", rewrite_produced)
    patch.setattr(Replica, "append", append_believed)
    patch.setattr(ProducerStates, "check_verified", check_verified)


def look_at_no_epochs(patch: Patch) -> None:
    """Who has been succeeded may go on."""

    def check_identity(current: Transaction | None, shown: Identity) -> Transaction:
        if current is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return current

    patch.setattr(joining, "check_identity", check_identity)


def keep_the_epoch(patch: Patch) -> None:
    """A successor is given what its predecessor had."""
    patch.setattr(Identity, "bumped", lambda self, ids: self)


def never_time_out(patch: Patch) -> None:
    patch.setattr(TransactionShard, "_abort_overdue", lambda self, now_ms: [])


def time_out_early(patch: Patch) -> None:
    """The moment they begin."""
    original = Transaction.overdue_ms

    def overdue_ms(self: Transaction) -> int | None:
        return None if original.__get__(self) is None else self.started_ms

    patch.setattr(Transaction, "overdue_ms", property(overdue_ms))


def decide_before_it_is_written(patch: Patch) -> None:
    """Markers leave before the record that decides is committed."""
    original = MarkerOutbox.prepared

    def prepared(self: MarkerOutbox, transaction: Transaction, position: int) -> None:
        original(self, transaction, position)
        self.committed(position)

    patch.setattr(MarkerOutbox, "prepared", prepared)


def write_aborts_down_behind_their_markers(patch: Patch) -> None:
    """The marker is in the log and its producer's transaction over when there is no room for the index entry. Then the
    coordinator tries again, nothing is open, and readers are not told what was aborted."""

    def replay(self: Log, batch: Buffer, position: int, header: BatchHeader, now_ms: int) -> None:
        try:
            replay_batch(self.active_segment, self.producers, batch, position, header, now_ms)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error

    patch.setattr(Log, "_prepare_abort", lambda self, producer_id, offset: None)
    patch.setattr(Log, "_take_back", lambda self, segment, position, offset: None)
    patch.setattr(Log, "_replay", replay)


def take_repeated_batches_for_new(patch: Patch) -> None:
    patch.setattr(ProducerStates, "check", lambda self, *arguments, **options: None)


def end_prepared_transactions_by_time(patch: Patch) -> None:
    """As if they were not part of another system's commit."""

    def overdue_ms(self: Transaction) -> int | None:
        return self.started_ms + 1000 if self.status is Status.ONGOING else None

    patch.setattr(Transaction, "overdue_ms", property(overdue_ms))


def abort_what_should_be_kept(patch: Patch) -> None:
    original = initializing.check_request

    def check_request(request: InitProducerIdRequest, *others: Any) -> None:
        original(request, *others)
        request.keep_prepared_txn = False

    patch.setattr(transaction_shard, "check_request", check_request)


def keep_for_the_former_producer_too(patch: Patch) -> None:
    """A member that comes back gets what it had, so that no member is fenced."""
    original = initializing._keep

    def keep(current: Transaction, *others: Any) -> Any:
        kept = original(current, *others)
        return kept._replace(transaction=current, identity=current.identity)

    patch.setattr(initializing, "_keep", keep)


# -- stories --------------------------------------------------------------------------------------------------------


class CutOffCoordinator(CoordinatorStory):
    """Of a group that commits; its clients still reach it."""

    async def misfortune(self) -> None:
        await self.everybody_back()
        for machine in self.world.brokers:
            if self.coordinator_watch.epoch_at(Place(GROUP, self.committer.group), machine.name) is not None:
                self.faults.isolate(machine)
        await asyncio.sleep(6.0)


class ReplacedCoordinator(CoordinatorStory):
    """It does not reach the controllers; the only group is one that commits."""

    def everybody(self) -> list[Any]:
        return [self.committer, self.offset_reader]

    async def misfortune(self) -> None:
        await self.everybody_back()
        place = Place(GROUP, self.committer.group)
        old = next(each for each in self.world.brokers if self.coordinator_watch.epoch_at(place, each.name) is not None)
        self.world.loop.network.partition([old.name], [each.name for each in self.world.controllers])
        await asyncio.sleep(12.0)
        self.world.loop.network.heal()

    async def groups_settle(self) -> None:
        """There are no members."""

    async def check_transactions(self) -> None:
        """There are none."""


class CutOffTransactions(CoordinatorStory):
    """The coordinator of a transactional id is cut off until another takes over; its clients still reach it."""

    async def misfortune(self) -> None:
        await self.everybody_back()
        place = Place(TRANSACTION, self.writers[0].name)
        for machine in self.world.brokers:
            if self.coordinator_watch.epoch_at(place, machine.name) is not None:
                self.faults.isolate(machine)
        await asyncio.sleep(12.0)


class ParkedJoins(CoordinatorStory):
    """Members wait for others to join, and their coordinator is cut off until another has its place."""

    properties = {**PROPERTIES, "group.initial.rebalance.delay.ms": "4000"}

    async def misfortune(self) -> None:
        await self.world.until(lambda: self.with_joins() is not None, "somebody joins")
        machine = self.with_joins()
        if machine is not None:
            self.faults.isolate(machine)
            await asyncio.sleep(6.0)

    def with_joins(self) -> Machine | None:
        for machine in self.world.brokers:
            assert machine.broker is not None
            for partition in machine.broker.coordinators.groups.partitions.values():
                groups = () if partition.shard is None else partition.shard.state.classic.values()
                if any(group.awaiting_joins for group in groups):
                    return machine
        return None


class VanishedMember(CoordinatorStory):
    """A coordinator dies after a member of a consumer group, and so soon that it has not missed it."""

    settles_s = 30.0

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed, rounds=1)
        (group,) = [each for each in self.groups if each.name == "consumer"]
        self.victim = Vanishing(group, stays=False)
        group.members[1:] = [self.victim]

    async def misfortune(self) -> None:
        await self.world.until(lambda: self.victim.has_vanished, "it has vanished")
        place = self.victim.group.place
        for machine in self.world.brokers:
            if self.coordinator_watch.epoch_at(place, machine.name) is not None:
                self.faults.crash(machine)
                return


class Vanishing(ConsumerMember):
    has_vanished = False

    async def run(self) -> None:
        self._begin()
        while not self.owned:
            await self._beat()
            await asyncio.sleep(0.1)
        self.owned.clear()
        self.has_vanished = True


class HungMember(CoordinatorStory):
    """A member of a consumer group hangs, and commits when another has gone on where it was."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        super().__init__(loop, seed, rounds=1)
        (group,) = [each for each in self.groups if each.name == "consumer"]
        self.victim = Hanging(group, stays=False)
        group.members = [Steady(group, stays=True), self.victim]

    async def misfortune(self) -> None:
        await self.world.until(lambda: self.victim.has_hung, "it has hung")


class Steady(ConsumerMember):
    async def _hang(self) -> None:
        """Never."""


class Hanging(ConsumerMember):
    has_hung = False

    async def run(self) -> None:
        self._begin()
        while not any(self.owned.values()):
            await self._beat()
            await self._commit()
            await asyncio.sleep(0.1)
        await self._hang()
        self.owned.clear()
        self.has_hung = True


class FailingAppends(CoordinatorStory):
    """Now and then there is no disk space for what coordinators write."""

    async def misfortune(self) -> None:
        for machine in self.world.brokers:
            machine.disk.fail("write", f"*/{CONSUMER_OFFSETS}-*/*.log", error=errno.ENOSPC, times=1)


class FullByBlocks(CoordinatorStory):
    """All disks, for a while: what fits into the last block of a log is still written, another file is not."""

    async def misfortune(self) -> None:
        for _ in range(50):
            if self.is_first_transaction():
                break
            await asyncio.sleep(0.1)
        for machine in self.world.brokers:
            machine.disk.fill(block_size=1 << 20)
        await asyncio.sleep(4.0)
        for machine in self.world.brokers:
            self.mend_disk(machine)

    def is_first_transaction(self) -> bool:
        """In a segment that has none yet."""
        return any(
            replica.topic_partition.topic == TOPIC
            and replica.log.producers.first_undecided_offset is not None
            and replica.log.active_segment.size > 0
            and not len(replica.log.active_segment.transactions)
            for machine in self.world.brokers
            for replica in machine.replicas
        )


class AbortsRefusedByFollowers(CoordinatorStory):
    """Followers have no disk space for the index entry of an abort."""

    async def misfortune(self) -> None:
        await asyncio.sleep(3.0)
        for machine in self.world.brokers:
            for replica in machine.replicas:
                if replica.leader is None:
                    machine.disk.fail("write", f"{replica.log.directory}/*.txnindex", error=errno.ENOSPC)
        await asyncio.sleep(8.0)
        for machine in self.world.brokers:
            self.mend_disk(machine)


class Variant(NamedTuple):
    sabotage: Callable[[Patch], None]
    checker: str  # it has to speak
    story: Callable[[SimulatedLoop, int], CoordinatorStory]
    first: int = 0  # the seed to begin with


def only(*misfortunes: str, rounds: int = 3) -> Callable[[SimulatedLoop, int], CoordinatorStory]:
    """Those that bring it out."""
    return partial(CoordinatorStory, rounds=rounds, misfortunes=misfortunes)


VARIANTS = [
    Variant(reply_before_commit, "AcknowledgedCommits", partial(CutOffCoordinator, rounds=1)),
    Variant(load_nothing, "SameLogSameState", only("kill")),
    Variant(load_from_the_high_watermark, "SameLogSameState", only("kill")),
    Variant(load_to_the_high_watermark, "SameLogSameState", only("kill"), first=4),
    Variant(pass_over_markers_when_loading, "SameLogSameState", only("kill"), first=4),
    Variant(pass_over_tombstones_when_loading, "SameLogSameState", only("kill"), first=2),
    Variant(keep_shards_between_epochs, "SameLogSameState", only("isolate", "elect"), first=2),
    Variant(keep_shards_that_are_ahead, "SameLogSameState", partial(FailingAppends, rounds=3), first=1),
    Variant(forget_whom_to_answer, "EveryoneIsAnswered", partial(CutOffCoordinator, rounds=1)),
    Variant(leave_joins_parked, "EveryoneIsAnswered", partial(ParkedJoins, rounds=1), first=3),
    Variant(answer_while_out_of_touch, "OffsetsAreCurrent", partial(ReplacedCoordinator, rounds=2), first=10),
    Variant(let_anybody_commit, "CommittedOffsetsStay", HungMember),
    Variant(give_what_others_have, "OneOwner", only("jump"), first=1),
    Variant(stay_in_one_generation, "OneOwner", only("jump"), first=4),
    Variant(keep_the_dead, "GroupsSettle", VanishedMember),
    Variant(forget_sessions_when_loading, "GroupsSettle", VanishedMember),
    Variant(end_sessions_early, "MembersStay", only("jump"), first=2),
    Variant(delete_groups_without_their_offsets, "DeletedStays", only("jump")),
    Variant(show_offsets_before_the_marker, "OffsetsWithTransaction", only("jump")),
    Variant(commit_no_offsets, "NoHangingTransaction", only("jump")),
    Variant(ignore_open_transactions, "NoAbortedRecord", only("jump")),
    Variant(abort_what_was_committed, "AllOrNothing", only("jump")),
    Variant(commit_what_was_aborted, "NoAbortedRecord", only("jump")),
    Variant(write_aborts_down_behind_their_markers, "NoAbortedRecord", only("refuse_aborts"), first=9),
    Variant(write_aborts_down_behind_their_markers, "StateMatchesLog", partial(FullByBlocks, rounds=1), first=9),
    Variant(
        write_aborts_down_behind_their_markers, "StateMatchesLog", partial(AbortsRefusedByFollowers, rounds=1), first=1
    ),
    Variant(verify_everything, "FencedProducer", only("jump"), first=5),
    Variant(verify_no_rewritten_batch, "NoAbortedRecord", only("slow_disk", rounds=4), first=33),
    Variant(look_at_no_epochs, "FencedProducer", only("jump"), first=1),
    Variant(keep_the_epoch, "FencedProducer", only("jump"), first=1),
    Variant(never_time_out, "NoHangingTransaction", only("jump"), first=1),
    Variant(time_out_early, "FreshTransactionsLive", only("slow_disk")),
    Variant(take_repeated_batches_for_new, "ExactlyOnce", only("separate"), first=6),
    Variant(decide_before_it_is_written, "DecidedFirst", only("jump")),
    Variant(end_prepared_transactions_by_time, "PreparedStays", only("jump"), first=1),
    Variant(abort_what_should_be_kept, "PreparedStays", only("jump"), first=1),
    Variant(keep_for_the_former_producer_too, "FencedProducer", only("jump"), first=11),
]


STORIES: list[Callable[[SimulatedLoop, int], CoordinatorStory]] = [
    VanishedMember,
    HungMember,
    partial(CutOffCoordinator, rounds=1),
    partial(ReplacedCoordinator, rounds=2),
    partial(CutOffTransactions, rounds=3),
    partial(ParkedJoins, rounds=1),
    partial(FailingAppends, rounds=3),
    partial(FullByBlocks, rounds=1),
    partial(AbortsRefusedByFollowers, rounds=1),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.sabotage.__name__)
def test_what_is_broken_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    variant.sabotage(monkeypatch)
    assert_caught(
        variant.checker,
        range(variant.first, variant.first + SEEDS),
        lambda seed: play_on_loop(seed, lambda loop: variant.story(loop, seed)).violation,
    )


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_what_is_not_broken_is_let_pass(number: int) -> None:
    assert play_on_loop(0, lambda loop: STORIES[number](loop, 0)).violation is None
