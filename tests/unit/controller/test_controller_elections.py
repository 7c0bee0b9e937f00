"""The one function that decides elections, case by case."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from penstock.controller.elections import (
    RECOVERED,
    RECOVERING,
    Election,
    Rules,
    Wanted,
    change_of,
    completed_reassignment,
)
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.model.ids import Uuid

TOPIC = b"t" * 16
ELR = Rules(min_insync_replicas=2, unclean=False, elr=True)
PLAIN = Rules(min_insync_replicas=2, unclean=False, elr=False)


def home(broker_id: int) -> Uuid:
    return (1000 + broker_id).to_bytes(16, "big")


def a_partition(replicas: tuple[int, ...] = (1, 2, 3), **fields: Any) -> Partition:
    values: dict[str, Any] = {
        "isr": replicas,
        "leader": replicas[0],
        "leader_epoch": 5,
        "partition_epoch": 7,
        "directories": tuple(map(home, replicas)),
    }
    return Partition(replicas=replicas, **{**values, **fields})


def after(partition: Partition, wanted: Wanted, alive: Collection[int], rules: Rules = ELR) -> Partition:
    """The partition as it will be; the same one if nothing changes."""
    change = change_of(TOPIC, 4, partition, wanted, lambda broker, at: broker in alive and at == home(broker), rules)
    if change is None:
        return partition
    assert (change.topic_id, change.partition_id) == (TOPIC, 4)
    return partition.merge(change)


# -- who leads ---------------------------------------------------------------------------------------------------------


def test_nothing_changes_without_a_reason() -> None:
    partition = a_partition()
    assert after(partition, Wanted(), {1, 2, 3}) is partition
    assert after(partition, Wanted(Election.PREFERRED), {1, 2, 3}) is partition
    assert after(partition, Wanted(isr=(1, 2, 3)), {1, 2, 3}) is partition


def test_the_first_usable_in_sync_replica_takes_over() -> None:
    partition = a_partition(isr=(1, 3, 2))
    result = after(partition, Wanted(isr=(3, 2)), {2, 3})
    assert (result.leader, result.isr, result.elr) == (2, (3, 2), ())
    assert (result.leader_epoch, result.partition_epoch) == (6, 8)
    assert after(partition, Wanted(isr=(3, 2)), {3}).leader == 3


def test_a_smaller_set_of_in_sync_replicas_keeps_the_leader_epoch() -> None:
    result = after(a_partition(), Wanted(isr=(1, 2)), {1, 2, 3})
    assert (result.leader, result.leader_epoch, result.partition_epoch) == (1, 5, 8)


def test_leadership_moves_only_when_it_must_or_when_the_preferred_one_is_asked_for() -> None:
    partition = a_partition(leader=2)
    assert after(partition, Wanted(), {1, 2, 3}) is partition
    assert after(partition, Wanted(Election.PREFERRED), {1, 2, 3}).leader == 1
    assert after(partition, Wanted(Election.PREFERRED), {2, 3}) is partition
    assert after(partition._replace(isr=(2, 3)), Wanted(Election.PREFERRED), {1, 2, 3}).leader == 2


def test_a_replica_whose_directory_is_not_there_cannot_lead() -> None:
    partition = a_partition(directories=(home(1), home(9), home(3)))
    assert after(partition, Wanted(isr=(2, 3)), {2, 3}).leader == 3


# -- with eligible leader replicas ---------------------------------------------------------------------------------


def test_those_who_leave_below_the_minimum_stay_eligible() -> None:
    partition = a_partition(isr=(1, 2))
    result = after(partition, Wanted(isr=(1,)), {1})
    assert (result.leader, result.isr, result.elr, result.last_known_elr) == (1, (1,), (2,), ())
    result = after(result, Wanted(isr=()), set())
    assert (result.leader, result.isr, result.elr, result.last_known_elr) == (NO_LEADER, (), (2, 1), (1,))


def test_enough_in_sync_replicas_make_the_others_not_eligible() -> None:
    partition = a_partition(isr=(1,), elr=(2,))
    assert after(partition, Wanted(isr=(1, 3)), {1, 3}).elr == ()


def test_an_eligible_replica_is_elected_when_nobody_is_in_sync() -> None:
    partition = a_partition(isr=(), elr=(2, 1), leader=NO_LEADER, last_known_elr=(1,))
    result = after(partition, Wanted(), {2, 3})
    assert (result.leader, result.isr, result.elr, result.last_known_elr) == (2, (2,), (1,), ())
    assert result.leader_recovery_state == RECOVERED
    # Not while somebody is in sync, even if that one is away.
    waiting = a_partition(isr=(1,), elr=(2,), leader=NO_LEADER)
    assert after(waiting, Wanted(), {2, 3}) is waiting


def test_a_crashed_replica_is_neither_in_sync_nor_eligible() -> None:
    partition = a_partition(isr=(1, 2))
    result = after(partition, Wanted(isr=(2,), crashed=(1,)), {2, 3})
    assert (result.leader, result.isr, result.elr) == (2, (2,), ())
    result = after(result._replace(elr=(3,)), Wanted(isr=(2,), crashed=(3,)), {2})
    assert (result.leader, result.isr, result.elr) == (2, (2,), ())


def test_whoever_led_last_is_elected_when_nobody_else_can_be() -> None:
    """A replication factor of one, and a kill."""
    crashed = after(a_partition((1,)), Wanted(isr=(), crashed=(1,)), set())
    assert (crashed.leader, crashed.isr, crashed.elr, crashed.last_known_elr) == (NO_LEADER, (), (), (1,))
    back = after(crashed, Wanted(), {1})
    assert (back.leader, back.isr, back.last_known_elr) == (1, (1,), ())
    assert (back.leader_recovery_state, back.leader_epoch) == (RECOVERING, 7)


def test_whoever_led_last_is_not_elected_before_others_that_are_eligible() -> None:
    partition = a_partition(isr=(), elr=(2,), leader=NO_LEADER, last_known_elr=(1,))
    assert after(partition, Wanted(), {1, 3}) is partition


def test_whoever_led_last_is_not_elected_with_another_directory() -> None:
    partition = a_partition((1,), isr=(), leader=NO_LEADER, last_known_elr=(1,), directories=(home(9),))
    assert after(partition, Wanted(), {1}) is partition
    forgotten = after(partition, Wanted(emptied=(1,)), {1})
    assert forgotten.last_known_elr == ()
    # Nor once the replica is said to be in the new directory.
    moved = after(forgotten, Wanted(directories={1: home(1)}), {1})
    assert (moved.directories, moved.leader) == ((home(1),), NO_LEADER)


def test_the_last_known_leader_is_the_first_that_was_lost() -> None:
    partition = a_partition(isr=(2,), leader=2)
    gone = after(partition, Wanted(isr=()), {3})
    assert gone.last_known_elr == (2,)
    assert after(gone, Wanted(crashed=(2,)), {3}).last_known_elr == (2,)


# -- without them ------------------------------------------------------------------------------------------------------


def test_without_the_feature_the_last_in_sync_replica_stays_one() -> None:
    partition = a_partition(isr=(1,))
    result = after(partition, Wanted(isr=(), crashed=(1,)), {2, 3}, PLAIN)
    assert (result.leader, result.isr, result.elr, result.last_known_elr) == (NO_LEADER, (1,), (), ())
    back = after(result, Wanted(), {1, 2, 3}, PLAIN)
    assert (back.leader, back.isr, back.leader_recovery_state) == (1, (1,), RECOVERED)


# -- unclean -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [ELR, PLAIN])
def test_an_unclean_election_takes_anyone_and_recovers(rules: Rules) -> None:
    partition = a_partition(isr=(1,))
    lost = after(partition, Wanted(isr=()), {2, 3}, rules)
    assert lost.leader == NO_LEADER
    result = after(lost, Wanted(Election.UNCLEAN), {2, 3}, rules)
    assert (result.leader, result.isr, result.elr) == (2, (2,), ())
    assert result.leader_recovery_state == RECOVERING


def test_an_unclean_election_prefers_a_clean_leader() -> None:
    partition = a_partition(isr=(), elr=(3,), leader=NO_LEADER)
    result = after(partition, Wanted(Election.UNCLEAN), {1, 2, 3})
    assert (result.leader, result.leader_recovery_state) == (3, RECOVERED)


def test_recovery_ends_when_the_leader_says_so() -> None:
    partition = a_partition(isr=(1,), leader_recovery_state=RECOVERING)
    assert after(partition, Wanted(leader_recovery_state=RECOVERED), {1}).leader_recovery_state == RECOVERED
    # Another leader goes on recovering.
    other = after(a_partition(isr=(1, 2), leader_recovery_state=RECOVERING), Wanted(isr=(2,)), {2})
    assert (other.leader, other.leader_recovery_state) == (2, RECOVERING)


# -- reassignments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "removing", "expected"),
    [
        # All that come are in sync.
        ((4, 2, 1), (1, 2, 4), (4,), (1,), ((4, 2), (2, 4))),
        ((4, 2, 1), (1, 2), (4,), (1,), None),
        # No replica would be left in sync.
        ((2, 1), (1,), (), (1,), None),
        ((4, 1), (1,), (4,), (1,), None),
        # Fewer come than go: all that stay must be in sync.
        ((3, 4, 5, 1, 2), (1, 2, 5), (5,), (1, 2), None),
        ((3, 4, 5, 1, 2), (1, 2, 3, 4, 5), (5,), (1, 2), ((3, 4, 5), (3, 4, 5))),
        ((1, 2, 3), (1, 3), (), (3,), None),
        ((1, 2, 3), (1, 2), (), (3,), ((1, 2), (1, 2))),
        # As many come as go: one that is behind may stay behind.
        ((2, 3, 1), (1, 3), (3,), (1,), ((2, 3), (3,))),
    ],
)
def test_when_a_reassignment_is_over(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    expected: tuple[tuple[int, ...], tuple[int, ...]] | None,
) -> None:
    assert completed_reassignment(replicas, isr, adding, removing) == expected


def test_the_end_of_a_reassignment_may_change_the_leader() -> None:
    partition = a_partition((4, 2, 1), isr=(1, 2), leader=1, adding_replicas=(4,), removing_replicas=(1,))
    result = after(partition, Wanted(isr=(1, 2, 4)), {1, 2, 4})
    assert (result.replicas, result.isr, result.leader) == ((4, 2), (2, 4), 4)
    assert (result.adding_replicas, result.removing_replicas) == ((), ())
    assert result.directories == (home(4), home(2))
    assert result.leader_epoch == 6


def test_a_replica_taken_away_is_fenced_by_a_new_leader_epoch() -> None:
    partition = a_partition((4, 2, 1), isr=(2, 1), leader=2, adding_replicas=(4,), removing_replicas=(1,))
    result = after(partition, Wanted(isr=(2, 1, 4)), {1, 2, 4})
    assert (result.leader, result.leader_epoch) == (2, 6)
    # One that is only added is not.
    grown = after(a_partition((1, 2)), Wanted(replicas=(1, 2, 3), adding=(3,), directories={3: home(3)}), {1, 2, 3})
    assert (grown.replicas, grown.adding_replicas, grown.leader_epoch) == ((1, 2, 3), (3,), 5)
    assert grown.directories == (home(1), home(2), home(3))


def test_only_replicas_are_eligible() -> None:
    """Replica 2 was in sync when it was taken away, and the one that stays is below the minimum."""
    partition = a_partition((1, 3, 2), isr=(2, 3), leader=2, adding_replicas=(3,), removing_replicas=(2,))
    result = after(partition, Wanted(isr=(2, 3)), {2, 3})
    assert (result.replicas, result.isr, result.elr, result.leader) == ((1, 3), (3,), (), 3)
