"""Assignors: every partition with one subscriber, evenly, and as little moved as possible."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.assignors import ASSIGNORS, Assignment, Subscriber, assign_range, assign_uniform
from penstock.groups.consumer_member import Target
from penstock.model.ids import Uuid


def topic(number: int) -> Uuid:
    return number.to_bytes(16, "big")


def members(*subscriptions: set[int], current: Assignment | None = None) -> list[Subscriber]:
    current = current or {}
    return [
        Subscriber(f"m{number}", None, frozenset(map(topic, topics)), current.get(f"m{number}", {}))
        for number, topics in enumerate(subscriptions)
    ]


def size(target: Target) -> int:
    return sum(len(partitions) for partitions in target.values())


def check(subscribers: list[Subscriber], counts: Mapping[Uuid, int], assignment: Assignment) -> None:
    """Each partition of a subscribed topic with one member, which is subscribed to it."""
    taken: set[tuple[Uuid, int]] = set()
    for subscriber in subscribers:
        for topic_id, partitions in assignment[subscriber.member_id].items():
            assert topic_id in subscriber.topics
            for partition in partitions:
                assert (topic_id, partition) not in taken
                taken.add((topic_id, partition))
    wanted = {topic_id for subscriber in subscribers for topic_id in subscriber.topics}
    assert taken == {(topic_id, partition) for topic_id in wanted for partition in range(counts.get(topic_id, 0))}


subscriptions = st.lists(st.sets(st.integers(0, 4), max_size=5), min_size=1, max_size=8)
partition_counts = st.dictionaries(st.integers(0, 4).map(topic), st.integers(0, 9))


@given(subscriptions, partition_counts, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_reader(wishes: list[set[int]], counts: dict[Uuid, int], name: str) -> None:
    subscribers = members(*wishes)
    check(subscribers, counts, ASSIGNORS[name](subscribers, counts))


@given(st.integers(1, 9), st.integers(1, 9), partition_counts)
def test_uniform_is_even_and_sticky(before: int, after: int, counts: dict[Uuid, int]) -> None:
    first = members(*[{0, 1, 2, 3, 4}] * before)
    old = assign_uniform(first, counts)
    second = members(*[{0, 1, 2, 3, 4}] * after, current=old)
    new = assign_uniform(second, counts)
    check(second, counts, new)
    sizes = [size(target) for target in new.values()]
    assert max(sizes) - min(sizes) <= 1
    # Only what has to move moves: what was with those that left, and what the newcomers get.
    kept = sum(
        len(old.get(m, {}).get(t, frozenset()) & parts) for m, target in new.items() for t, parts in target.items()
    )
    if after <= before:
        assert kept == sum(size(old[f"m{number}"]) for number in range(after))
    else:
        assert kept == sum(counts.values()) - sum(size(new[f"m{number}"]) for number in range(before, after))


@given(subscriptions, partition_counts)
def test_uniform_is_as_even_as_subscriptions_allow(wishes: list[set[int]], counts: dict[Uuid, int]) -> None:
    subscribers = members(*wishes)
    assignment = assign_uniform(subscribers, counts)
    for giver in subscribers:
        for topic_id in assignment[giver.member_id]:
            for taker in subscribers:
                if topic_id in taker.topics:
                    assert size(assignment[giver.member_id]) - size(assignment[taker.member_id]) <= 1


@given(subscriptions, partition_counts)
def test_uniform_leaves_alone_what_is_good(wishes: list[set[int]], counts: dict[Uuid, int]) -> None:
    assignment = assign_uniform(members(*wishes), counts)
    again = assign_uniform(members(*wishes, current=assignment), counts)
    assert again == assignment


def test_range_gives_the_same_partitions_of_each_topic() -> None:
    counts = {topic(1): 5, topic(2): 5}
    assignment = assign_range(members({1, 2}, {1, 2}, {1}), counts)
    assert assignment["m0"] == {topic(1): frozenset({0, 1}), topic(2): frozenset({0, 1, 2})}
    assert assignment["m1"] == {topic(1): frozenset({2, 3}), topic(2): frozenset({3, 4})}
    assert assignment["m2"] == {topic(1): frozenset({4})}


def test_static_members_keep_their_ranges_under_new_ids() -> None:
    counts = {topic(1): 4}
    before = [Subscriber("x", "i1", frozenset({topic(1)}), {}), Subscriber("b", "i2", frozenset({topic(1)}), {})]
    after = [Subscriber("a", "i2", frozenset({topic(1)}), {}), Subscriber("x", "i1", frozenset({topic(1)}), {})]
    assert assign_range(before, counts)["b"] == assign_range(after, counts)["a"] == {topic(1): frozenset({2, 3})}


def test_more_members_than_partitions() -> None:
    assignment = assign_uniform(members(*[{1}] * 5), {topic(1): 2})
    assert sorted(size(target) for target in assignment.values()) == [0, 0, 0, 1, 1]
