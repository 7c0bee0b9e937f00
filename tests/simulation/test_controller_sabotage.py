"""Every checker of the controller's story catches someone: the controller, broken on purpose, one law at a time.

A variant is played with seed after seed until the checker named with it speaks. What no decision of the controller can
bring about, records made by hand do (`tests/properties/test_controller_cluster.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock.controller import alter_partition, brokers, configs, directories, elections, leaders, reassignments
from penstock.controller.elections import RECOVERED, Completed, Election, Replicas, Rules, Usable, Wanted
from penstock.controller.view import MIN_INSYNC_REPLICAS, ClusterView
from penstock.metadata.index import PartitionIndex, PartitionKey
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.metadata.serde import encode_record
from penstock.metadata.topics import Topic
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord
from penstock.simulator.stories import controller_story
from simulation.sabotage import assert_caught

Patch = pytest.MonkeyPatch
SEEDS = 60
# What is rare is looked for where it is met.
FIRST = {
    "wait_for_those_who_lose_their_place": 189,
    "drop_those_who_know": 45,
    "unassigned_replicas_are_always_found": 25,
}


def elect_the_dead(patch: Patch) -> None:
    def usable(self: ClusterView, broker_id: int, directory: bytes) -> bool:
        return broker_id in self.image.brokers

    patch.setattr(ClusterView, "usable", usable)


def elect_without_the_directory(patch: Patch) -> None:
    """What a broker leads may be on a disk that it no longer has."""

    def usable(self: ClusterView, broker_id: int, directory: bytes) -> bool:
        return broker_id in self.image.brokers and self.image.brokers[broker_id].active

    patch.setattr(ClusterView, "usable", usable)
    patch.setattr(
        ClusterView, "usable_and", lambda self, back: lambda one, directory: one == back or usable(self, one, b"")
    )


def elect_anybody(patch: Patch) -> None:
    """Whether it is in sync or not."""
    original = elections._elect

    def elect(partition: Partition, replicas: Replicas, isr: Replicas, *others: Any) -> tuple[int, bool]:
        leader, unclean = original(partition, replicas, isr, *others)
        if leader >= 0:
            return leader, unclean
        return original(partition, replicas, replicas, *others)[0], True

    patch.setattr(elections, "_elect", elect)


def elect_outside_the_isr(patch: Patch) -> None:
    """And forget to make it a member."""
    original = elections._elect

    def elect(partition: Partition, replicas: Replicas, isr: Replicas, *others: Any) -> tuple[int, bool]:
        return original(partition, replicas, replicas, *others)

    patch.setattr(elections, "_elect", elect)


def crashed_brokers_stay_eligible(patch: Patch) -> None:
    original = elections._eligible

    def eligible(partition: Partition, replicas: Replicas, isr: Replicas, wanted: Wanted, rules: Rules) -> Replicas:
        return original(partition, replicas, isr, replace(wanted, crashed=()), rules)

    patch.setattr(elections, "_eligible", eligible)


def in_sync_and_eligible(patch: Patch) -> None:
    """One that comes back in sync stays on the other list."""
    original = elections._eligible

    def eligible(partition: Partition, replicas: Replicas, isr: Replicas, wanted: Wanted, rules: Rules) -> Replicas:
        return tuple(dict.fromkeys((*original(partition, replicas, isr, wanted, rules), *partition.elr)))

    patch.setattr(elections, "_eligible", eligible)


def remember_the_last_leader_too_long(patch: Patch) -> None:
    original = elections._last_known

    def last_known(partition: Partition, leader: int, *others: Any) -> Replicas:
        return original(partition, NO_LEADER if leader >= 0 else leader, *others)

    patch.setattr(elections, "_last_known", last_known)


def recover_without_saying_so(patch: Patch) -> None:
    """An unclean leader passes for one that has everything."""
    original = elections.change_of

    def change_of(*arguments: Any) -> PartitionChangeRecord | None:
        record = original(*arguments)
        if record is not None and record.leader_recovery_state == elections.RECOVERING:
            record.leader_recovery_state = RECOVERED
        return record

    patch.setattr("penstock.controller.view.change_of", change_of)


def recover_in_company(patch: Patch) -> None:
    """Others may be in sync with a leader that still recovers."""
    patch.setattr(alter_partition, "_check_proposal", lambda partition, isr, recovery_state: None)


def leaders_share_an_epoch(patch: Patch) -> None:
    original = Partition.merge

    def merge(self: Partition, change: PartitionChangeRecord) -> Partition:
        return original(self, change)._replace(leader_epoch=self.leader_epoch)

    patch.setattr(Partition, "merge", merge)


def changes_share_an_epoch(patch: Patch) -> None:
    original = Partition.merge

    def merge(self: Partition, change: PartitionChangeRecord) -> Partition:
        return original(self, change)._replace(partition_epoch=self.partition_epoch)

    patch.setattr(Partition, "merge", merge)


def the_last_in_sync_stays_though_empty(patch: Patch) -> None:
    """Without ELR somebody is always in sync, also one that has just made its replica anew."""
    original = elections.change_of

    def change_of(
        topic_id: bytes, partition_id: int, partition: Partition, wanted: Wanted, usable: Usable, rules: Rules
    ) -> PartitionChangeRecord | None:
        forgetful = wanted if rules.elr else replace(wanted, emptied=())
        return original(topic_id, partition_id, partition, forgetful, usable, rules)

    patch.setattr("penstock.controller.view.change_of", change_of)


def a_new_directory_is_as_good_as_the_old_one(patch: Patch) -> None:
    """A replica that is reported in another directory is trusted as before, though the one it was in is gone."""

    def wanted(*, isr: Replicas, directories: Any, emptied: Any) -> Wanted:
        return Wanted(isr=isr, directories=directories)

    patch.setattr(directories, "Wanted", wanted)


def unassigned_replicas_are_always_found(patch: Patch) -> None:
    """A replica that no broker reported is taken to be where it was, though a disk is missing."""
    patch.setattr(leaders, "is_reserved_directory", lambda directory: False)


def nobody_leaves(patch: Patch) -> None:
    """A reassignment ends, and those who should go stay."""
    original = elections.completed_reassignment

    def completed(replicas: Replicas, isr: Replicas, adding: Replicas, removing: Replicas) -> Completed | None:
        return None if original(replicas, isr, adding, removing) is None else Completed(replicas, isr)

    patch.setattr(elections, "completed_reassignment", completed)


def nobody_leads_on_return(patch: Patch) -> None:
    """A broker comes back, and what waits for it waits on."""
    patch.setattr(brokers, "when_back", lambda view, broker_id: iter(()))


def wait_for_those_who_lose_their_place(patch: Patch) -> None:
    """Whom an unclean election waits for is decided before the change, not after it."""

    def change_and_elect(
        self: ClusterView, topic: Topic, partition_id: int, wanted: Wanted, usable: Usable | None = None, **gone: Any
    ) -> PartitionChangeRecord | None:
        election = wanted.election
        if election is Election.ONLINE:
            election = self.election(topic, topic.partitions[partition_id], **gone)
        return self.change(topic, partition_id, replace(wanted, election=election), usable)

    patch.setattr(ClusterView, "change_and_elect", change_and_elect)


def drop_those_who_know(patch: Patch) -> None:
    """The next reassignment takes away what came with the one before, though no other replica can lead."""
    original = reassignments.plan_reassignment

    def plan(partition: Partition, target: Replicas) -> reassignments.Reassignment:
        return original(partition._replace(elr=(), last_known_elr=()), target)

    patch.setattr(reassignments, "plan_reassignment", plan)


def forget_who_led_last(patch: Patch) -> None:
    """With another minimum."""

    def records_after_change(view: ClusterView, records: Iterable[Message]) -> list[Message]:
        changed = any(isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS for record in records)
        return [ClearElrRecord()] if changed and view.elr else []

    patch.setattr(configs, "records_after_change", records_after_change)


def change_a_partition_twice(patch: Patch) -> None:
    """A broker's partitions are those it is eligible for and those it led last, some of which are both."""

    def led_last(view: ClusterView, broker_id: int) -> list[PartitionKey]:
        return [key for key in view.index.leaderless if broker_id in view.find(key)[1].last_known_elr]

    patch.setattr(leaders, "_led_last", led_last)


def forget_who_is_eligible(patch: Patch) -> None:
    """The index does."""
    original = PartitionIndex._change

    def change(self: PartitionIndex, key: tuple[bytes, int], old: Partition, new: Partition) -> None:
        original(self, key, old, new._replace(elr=()))

    patch.setattr(PartitionIndex, "_change", change)


def lose_a_field(patch: Patch) -> None:
    """The log does not hold what the controller has decided."""

    def encode(record: Message, version: int) -> bytes:
        if isinstance(record, PartitionChangeRecord):
            record.last_known_elr = None
        return encode_record(record, version)

    patch.setattr(controller_story, "encode_record", encode)


VARIANTS: list[tuple[Callable[[Patch], None], str]] = [
    (elect_the_dead, "LeaderNotFenced"),
    (elect_without_the_directory, "LeaderHasItsDirectory"),
    (the_last_in_sync_stays_though_empty, "NeverElectAnEmptyReplica"),
    (a_new_directory_is_as_good_as_the_old_one, "NeverElectAnEmptyReplica"),
    (unassigned_replicas_are_always_found, "NeverElectAnEmptyReplica"),
    (elect_anybody, "CleanUnlessAllowed"),
    (elect_outside_the_isr, "LeaderInIsr"),
    (crashed_brokers_stay_eligible, "NoStaleIncarnation"),
    (in_sync_and_eligible, "ElrDisjointFromIsr"),
    (remember_the_last_leader_too_long, "LastKnownOnlyWithoutLeader"),
    (recover_without_saying_so, "UncleanRecovers"),
    (recover_in_company, "RecoversAlone"),
    (leaders_share_an_epoch, "NewLeaderNewEpoch"),
    (changes_share_an_epoch, "PartitionEpochMonotonic"),
    (nobody_leaves, "ReplicationFactorKept"),
    (nobody_leads_on_return, "AvailableWherePossible"),
    (wait_for_those_who_lose_their_place, "AvailableWherePossible"),
    (drop_those_who_know, "SomebodyKnows"),
    (forget_who_led_last, "SomebodyKnows"),
    (change_a_partition_twice, "OneChangeOfAPartition"),
    (forget_who_is_eligible, "IndexEqualsImage"),
    (lose_a_field, "ReplayEqualsImage"),
]


@pytest.mark.parametrize(("sabotage", "checker"), VARIANTS, ids=[sabotage.__name__ for sabotage, _ in VARIANTS])
def test_what_is_broken_is_caught(sabotage: Callable[[Patch], None], checker: str, monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    first = FIRST.get(sabotage.__name__, 0)
    assert_caught(checker, range(first, first + SEEDS), lambda seed: controller_story.play(seed).violation)
