from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.placement import UsableBroker, alternate_racks, place
from penstock.model.errors import ErrorCode, KafkaError


def brokers(count: int, racks: int = 1) -> list[UsableBroker]:
    return [UsableBroker(number, f"rack-{number % racks}", False) for number in range(count)]


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 60), st.integers(0, 1000), st.data())
def test_leaders_and_replicas_are_spread(
    count: int, racks: int, partitions: int, first: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    placed = place(brokers(count, racks), partitions, factor, first)
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - (min(leaders.values()) if len(leaders) == count else 0) <= 1
    for replicas in placed:
        used = Counter(number % racks for number in replicas)
        sizes = Counter(number % racks for number in range(count))
        # A rack is used again only when every other rack that has room is used as often.
        for rack, times in used.items():
            for other, size in sizes.items():
                assert times - 1 <= used[other] or used[other] == size, (rack, other)


def test_many_single_partition_topics_are_spread_like_one_large_one() -> None:
    cluster = brokers(6, racks=3)
    together = place(cluster, 30, 3, 0)
    one_by_one = [place(cluster, 1, 3, number)[0] for number in range(30)]
    assert together == one_by_one
    counts = Counter(replica for replicas in together for replica in replicas)
    assert set(counts.values()) == {15}


def test_the_followers_of_one_leader_differ() -> None:
    placed = place(brokers(5), 40, 2, 0)
    assert {replicas[1] for replicas in placed if replicas[0] == 0} == {1, 2, 3, 4}


def test_racks_alternate_even_when_they_are_uneven() -> None:
    cluster = [UsableBroker(1, "a", False), UsableBroker(2, "a", False), UsableBroker(3, "b", False)]
    assert [broker.broker_id for broker in alternate_racks(cluster)] == [1, 3, 2]


def test_fenced_brokers_are_the_last_resort() -> None:
    cluster = [UsableBroker(1, "a", False), UsableBroker(2, "b", True), UsableBroker(3, "a", False)]
    assert all(2 not in replicas for replicas in place(cluster, 6, 2, 0))
    assert all(replicas[-1] == 2 for replicas in place(cluster, 6, 3, 0))


@pytest.mark.parametrize(
    ("cluster", "factor", "message"),
    [
        (brokers(2), 3, "only 2 broker(s) are registered"),
        (brokers(2), 0, "must be positive"),
        ([UsableBroker(1, None, True)], 1, "All brokers are currently fenced"),
        ([], 1, "All brokers are currently fenced"),
    ],
)
def test_what_cannot_be_placed(cluster: list[UsableBroker], factor: int, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        place(cluster, 1, factor, 0)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert message in caught.value.message
