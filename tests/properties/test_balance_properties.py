"""The laws of plans that balance a cluster or empty a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.balance import (
    DISK_PART_MAX,
    TOLERANCE,
    BrokerState,
    CannotBalance,
    Move,
    PartitionState,
    plan_balance,
)
from penstock.controller.placement import Placement, UsableBroker
from property_examples import examples


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BrokerState], list[PartitionState]]:
    hosts = draw(st.integers(1, 5))
    racks = [draw(st.integers(0, 2)) for _ in range(hosts)]
    brokers = []
    for broker_id in range(draw(st.integers(1, 7))):
        host = draw(st.integers(0, hosts - 1))
        takes = draw(st.integers(0, 9)) > 0
        brokers.append(BrokerState(broker_id, f"rack-{racks[host]}", f"host-{host}", takes_replicas=takes))
    ids = [broker.broker_id for broker in brokers]
    partitions = []
    for number in range(draw(st.integers(0, 30))):
        replicas = draw(st.permutations(ids))[: draw(st.integers(1, min(4, len(ids))))]
        partitions.append(PartitionState("events", number, tuple(replicas), draw(st.sampled_from([0, 1, 10, 500]))))
    return brokers, partitions


def applied(partitions: Sequence[PartitionState], moves: Sequence[Move]) -> list[PartitionState]:
    changed = {(move.topic, move.partition): move.after for move in moves}
    return [replace(each, replicas=changed.get((each.topic, each.partition), each.replicas)) for each in partitions]


def places(brokers: Sequence[BrokerState], replicas: Sequence[int]) -> tuple[int, int]:
    known = {broker.broker_id: broker for broker in brokers}
    return len({known[each].host for each in replicas}), len({known[each].rack for each in replicas})


def check_moves(brokers: Sequence[BrokerState], partitions: Sequence[PartitionState], moves: Sequence[Move]) -> None:
    known = {(each.topic, each.partition): each for each in partitions}
    takers = {broker.broker_id for broker in brokers if broker.takes_replicas}
    assert len({(move.topic, move.partition) for move in moves}) == len(moves)
    for move in moves:
        assert move.before == known[move.topic, move.partition].replicas != move.after
        assert len(move.after) == len(set(move.after)) == len(move.before)
        assert takers.issuperset(move.adding)


@given(clusters())
@settings(max_examples=examples(150), deadline=None)
def test_a_balance_keeps_replicas_and_spread_and_is_done_at_once(
    cluster: tuple[list[BrokerState], list[PartitionState]],
) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions)
    check_moves(brokers, partitions, moves)
    for move in moves:
        hosts_before, racks_before = places(brokers, move.before)
        hosts, racks = places(brokers, move.after)
        assert hosts >= hosts_before
        assert racks >= racks_before
    assert plan_balance(brokers, applied(partitions, moves)) == []


@given(clusters(), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_drained_broker_keeps_nothing(
    cluster: tuple[list[BrokerState], list[PartitionState]], data: st.DataObject
) -> None:
    brokers, partitions = cluster
    broker_id = data.draw(st.sampled_from([broker.broker_id for broker in brokers]))
    others = {broker.broker_id for broker in brokers if broker.takes_replicas} - {broker_id}
    needed = [each for each in partitions if broker_id in each.replicas]
    if any(others <= set(each.replicas) for each in needed):
        with pytest.raises(CannotBalance, match="brokers are left"):
            plan_balance(brokers, partitions, drained=[broker_id])
        return
    moves = plan_balance(brokers, partitions, drained=[broker_id])
    check_moves(brokers, partitions, moves)
    after = applied(partitions, moves)
    assert all(broker_id not in each.replicas for each in after)
    # What need not move stays, and leaderships are passed on without a copy.
    assert all(len(move.adding) == (broker_id in move.before) for move in moves)
    assert plan_balance(brokers, after, drained=[broker_id]) == []


@given(clusters())
@settings(max_examples=examples(100), deadline=None)
def test_leaders_are_spread_without_a_copy(cluster: tuple[list[BrokerState], list[PartitionState]]) -> None:
    brokers, partitions = cluster
    moves = plan_balance(brokers, partitions, leaders_only=True)
    assert all(set(move.before) == set(move.after) and not move.copied_bytes for move in moves)
    before, after = (
        Counter(each.replicas[0] for each in states) for states in (partitions, applied(partitions, moves))
    )
    assert max(after.values(), default=0) <= max(before.values(), default=0)
    # No follower could take over from a leader that leads two more than it.
    takers = {broker.broker_id for broker in brokers if broker.takes_replicas}
    for each in applied(partitions, moves):
        leader, *followers = each.replicas
        if leader in takers:
            assert all(after[leader] - after[follower] <= 1 for follower in followers if follower in takers)


@given(
    st.integers(2, 6), st.integers(1, 3), st.lists(st.sampled_from([10, 20, 40]), min_size=40, max_size=80), st.data()
)
@settings(max_examples=examples(40), deadline=None)
def test_new_brokers_are_filled_with_little_more_than_their_share(
    count: int, factor: int, sizes: list[int], data: st.DataObject
) -> None:
    factor = min(factor, count)
    new = data.draw(st.integers(1, 2))
    placed = Placement().place([UsableBroker(each, None, False) for each in range(count)], len(sizes), factor)
    partitions = [
        PartitionState("events", number, replicas, size)
        for number, (replicas, size) in enumerate(zip(placed, sizes, strict=True))
    ]
    # What was there is even already, so that all movement is for the new ones.
    partitions = applied(partitions, plan_balance([BrokerState(each) for each in range(count)], partitions))
    brokers = [BrokerState(each) for each in range(count + new)]
    moves = plan_balance(brokers, partitions)
    replicas: Counter[int] = Counter()
    stored: Counter[int] = Counter()
    for each in applied(partitions, moves):
        replicas.update(each.replicas)
        stored.update(dict.fromkeys(each.replicas, each.size))
    mean_replicas, mean_bytes = len(sizes) * factor / len(brokers), sum(sizes) * factor / len(brokers)
    for broker in brokers:
        assert abs(replicas[broker.broker_id] - mean_replicas) <= max(3, 3 * TOLERANCE * mean_replicas)
        assert abs(stored[broker.broker_id] - mean_bytes) <= max(120, 3 * TOLERANCE * mean_bytes)
    share = mean_bytes * new
    assert sum(move.copied_bytes for move in moves) <= 1.5 * share + 80 * new


def test_two_replicas_on_one_host_are_set_apart() -> None:
    brokers = [BrokerState(number, None, f"host-{number // 2}") for number in range(4)]
    moves = plan_balance(brokers, [PartitionState("events", 0, (0, 1), 5)])
    assert [{each // 2 for each in move.after} for move in moves] == [{0, 1}]


def test_a_full_disk_takes_nothing() -> None:
    brokers = [
        BrokerState(0, disk_bytes=1000, free_bytes=500),
        BrokerState(1, disk_bytes=1000, free_bytes=int(1000 * (1 - DISK_PART_MAX)) + 99),
        BrokerState(2, disk_bytes=1000, free_bytes=900),
    ]
    partitions = [PartitionState("events", number, (0,), 100) for number in range(6)]
    moves = plan_balance(brokers, partitions)
    assert moves and all(move.after == (2,) for move in moves)


def test_larger_disks_get_more_bytes() -> None:
    brokers = [BrokerState(0, disk_bytes=3000, free_bytes=3000), BrokerState(1, disk_bytes=1000, free_bytes=1000)]
    partitions = [PartitionState("events", number, (number % 2,), 10 if number % 4 else 100) for number in range(40)]
    after = applied(partitions, plan_balance(brokers, partitions))
    stored = Counter[int]()
    for each in after:
        stored[each.replicas[0]] += each.size
    assert stored[0] > 1.5 * stored[1]


def test_leaders_are_passed_on_through_others() -> None:
    """Broker 0 leads three, and shares none of them with broker 2."""
    partitions = [PartitionState("events", number, (0, 1)) for number in range(3)]
    partitions += [PartitionState("events", 3, (1, 2)), PartitionState("events", 4, (1, 2))]
    brokers = [BrokerState(number) for number in range(3)]
    after = applied(partitions, plan_balance(brokers, partitions, leaders_only=True))
    assert sorted(Counter(each.replicas[0] for each in after).values()) == [1, 2, 2]


def test_a_broker_that_is_down_is_left_alone() -> None:
    brokers = [BrokerState(0), BrokerState(1, takes_replicas=False), BrokerState(2)]
    partitions = [PartitionState("events", number, (1,), 10) for number in range(9)]
    assert plan_balance(brokers, partitions) == []
