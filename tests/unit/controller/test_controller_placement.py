from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.placement import TOLERANCE, Placement, UsableBroker, alternate
from penstock.model.errors import ErrorCode, KafkaError
from property_examples import examples


def brokers(count: int, racks: int = 1) -> list[UsableBroker]:
    return [UsableBroker(number, f"rack-{number % racks}", False) for number in range(count)]


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 60), st.integers(0, 1000), st.data())
def test_leaders_and_replicas_are_spread(
    count: int, racks: int, partitions: int, first: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    placed = Placement(first).place(brokers(count, racks), partitions, factor)
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


@st.composite
def hosts(draw: st.DrawFn) -> list[UsableBroker]:
    """Up to eight hosts of up to five brokers, in up to three racks, in any order of ids."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    racks = [draw(st.integers(0, 2)) for _ in sizes]
    places = [(racks[number], number) for number, size in enumerate(sizes) for _ in range(size)]
    return [
        UsableBroker(broker_id, f"rack-{rack}", False, f"host-{host}")
        for broker_id, (rack, host) in enumerate(draw(st.permutations(places)))
    ]


@given(hosts(), st.integers(1, 6), st.integers(1, 40), st.integers(0, 500))
def test_racks_come_first_then_hosts_and_no_host_has_two_without_need(
    cluster: list[UsableBroker], factor: int, partitions: int, first: int
) -> None:
    factor = min(factor, len(cluster))
    known = {broker.broker_id: broker for broker in cluster}
    sizes = Counter(broker.host for broker in cluster)
    rack_of = {broker.host: broker.rack for broker in cluster}
    placed = Placement(first).place(cluster, partitions, factor)
    leaders = Counter(replicas[0] for replicas in placed)
    assert spread_of(leaders, list(known)) <= 1
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = Counter(known[replica].host for replica in replicas)
        in_racks = Counter(known[replica].rack for replica in replicas)
        assert len(used) == min(factor, len(sizes))
        assert len(in_racks) == min(factor, len(set(rack_of.values())))
        # A host is used again only when every other host that has room is used as often.
        assert all(used[host] - 1 <= used[other] or used[other] == sizes[other] for host in used for other in sizes)
        # A rack is used again only when every other rack with a host to spare is used as often.
        spare = {rack_of[host] for host in sizes if not used[host]}
        assert all(in_racks[rack] - 1 <= in_racks[other] for rack in in_racks for other in spare)


def test_four_hosts_of_eight_cores_share_replicas_and_successors_evenly() -> None:
    cluster = [UsableBroker(number, f"rack-{number // 8 % 2}", False, f"host-{number // 8}") for number in range(32)]
    placed = Placement().place(cluster, 3200, 3)
    replicas = Counter(number for replicas in placed for number in replicas)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {100}
    assert spread_of(replicas, list(range(32))) <= 12  # of 300
    successors = Counter((replicas[0], replicas[1]) for replicas in placed)
    assert max(successors.values()) <= 20


def test_the_leaders_of_a_small_topic_are_on_different_hosts() -> None:
    cluster = [UsableBroker(number, None, False, f"host-{number // 4}") for number in range(12)]
    assert {replicas[0] // 4 for replicas in Placement().place(cluster, 3, 1)} == {0, 1, 2}


@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 3), st.sampled_from(["one", "each"]))
def test_one_host_for_all_and_one_for_each_are_placed_as_without_hosts(
    count: int, racks: int, factor: int, kind: str
) -> None:
    cluster = brokers(count, racks)
    known = [broker._replace(host="here" if kind == "one" else f"host-{broker.broker_id}") for broker in cluster]
    factor = min(factor, count)
    assert Placement().place(known, 20, factor) == Placement().place(cluster, 20, factor)


def test_many_single_partition_topics_are_spread_like_one_large_one() -> None:
    cluster = brokers(6, racks=3)
    together = Placement().place(cluster, 30, 3)
    placement = Placement()
    one_by_one = [placement.place(cluster, 1, 3)[0] for _ in range(30)]
    assert together == one_by_one
    counts = Counter(replica for replicas in together for replica in replicas)
    assert set(counts.values()) == {15}


def test_the_followers_of_one_leader_differ() -> None:
    placed = Placement().place(brokers(5), 40, 2)
    assert {replicas[1] for replicas in placed if replicas[0] == 0} == {1, 2, 3, 4}


def test_racks_alternate_even_when_they_are_uneven() -> None:
    cluster = [UsableBroker(1, "a", False), UsableBroker(2, "a", False), UsableBroker(3, "b", False)]
    assert [broker.broker_id for broker in alternate(cluster)] == [1, 3, 2]


def test_fenced_brokers_are_the_last_resort() -> None:
    cluster = [UsableBroker(1, "a", False), UsableBroker(2, "b", True), UsableBroker(3, "a", False)]
    assert all(2 not in replicas for replicas in Placement().place(cluster, 6, 2))
    assert all(replicas[-1] == 2 for replicas in Placement().place(cluster, 6, 3))


def spread_of(counts: Counter[int], broker_ids: list[int]) -> int:
    return max(counts[broker_id] for broker_id in broker_ids) - min(counts[broker_id] for broker_id in broker_ids)


@given(st.integers(1, 100), st.integers(1, 12), st.integers(1, 3), st.integers(0, 500), st.lists(st.integers(1, 400)))
@settings(max_examples=examples(40), deadline=None)
def test_replicas_are_even_over_brokers_and_racks(
    count: int, racks: int, factor: int, first: int, topics: list[int]
) -> None:
    """Whatever the sizes of topics: leaders differ by one, replicas by little more than what is tolerated."""
    factor = min(factor, count)
    cluster = brokers(count, racks)
    placement = Placement(first)
    placed = [replicas for size in topics for replicas in placement.place(cluster, size, factor)]
    ids = list(range(count))
    assert spread_of(Counter(replicas[0] for replicas in placed), ids) <= 1
    if racks >= factor:
        assert all(len({number % racks for number in replicas}) == min(factor, count) for replicas in placed)
    replicas = Counter(number for replicas in placed for number in replicas)
    for rack in range(min(racks, count)):
        assert spread_of(replicas, ids[rack::racks]) <= TOLERANCE + factor
    # Over all brokers where it can be: racks of one size, or a choice of racks.
    if count % racks == 0 or racks >= 2 * factor:
        assert spread_of(replicas, ids) <= 2 * (TOLERANCE + factor)


@pytest.mark.parametrize("racks", [1, 3, 7, 10, 100])
def test_ten_thousand_partitions_on_a_hundred_brokers(racks: int) -> None:
    placed = Placement().place(brokers(100, racks), 10_000, 3)
    leaders = Counter(replicas[0] for replicas in placed)
    replicas = Counter(number for replicas in placed for number in replicas)
    assert set(leaders.values()) == {100}
    assert spread_of(replicas, list(range(100))) <= 12  # of 300
    if racks >= 3:
        assert all(len({number % racks for number in replicas}) == 3 for replicas in placed)
    # A broker that dies leaves its hundred leaderships to many.
    successors = Counter((replicas[0], replicas[1]) for replicas in placed)
    assert max(successors.values()) <= 10


def test_a_broker_that_joins_gets_its_share_and_not_everything() -> None:
    placement = Placement()
    placement.place(brokers(4), 400, 2)
    placed = placement.place(brokers(5), 100, 2)
    assert Counter(number for replicas in placed for number in replicas)[4] == pytest.approx(40, abs=TOLERANCE + 2)


def test_what_was_only_tried_is_not_counted() -> None:
    placement = Placement()
    placement.place(brokers(3), 4, 2)
    tried = placement.copy().place(brokers(3), 5, 2)
    assert placement.place(brokers(3), 5, 2) == tried


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
        Placement().place(cluster, 1, factor)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert message in caught.value.message
