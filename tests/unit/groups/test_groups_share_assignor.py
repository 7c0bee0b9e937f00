"""The assignor of share groups: even, sticky, and no member idle."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.consumer_member import Target
from penstock.groups.share_assignor import ShareSubscriber, assign_simple

A, B = b"a" * 16, b"b" * 16


def members(count: int, current: dict[str, Target] | None = None) -> list[ShareSubscriber]:
    return [
        ShareSubscriber(f"m{index:03}", frozenset({A, B}), (current or {}).get(f"m{index:03}", {}))
        for index in range(count)
    ]


def sizes(assignment: dict[str, Target]) -> list[int]:
    return [sum(map(len, target.values())) for target in assignment.values()]


def sharing(assignment: dict[str, Target]) -> Counter[tuple[bytes, int]]:
    return Counter(
        (topic_id, each) for target in assignment.values() for topic_id, part in target.items() for each in part
    )


@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=5), a=st.integers(0, 5), b=st.integers(0, 5))
def test_even_whatever_the_group_was_before(counts: list[int], a: int, b: int) -> None:
    partitions = {A: range(a), B: range(b)}
    current: dict[str, Target] = {}
    for count in counts:
        current = assign_simple(members(count, current), partitions)
        assert len(current) == count
        if not a + b:
            assert sizes(current) == [0] * count
            continue
        held = sharing(current)
        assert set(held) == {(A, each) for each in range(a)} | {(B, each) for each in range(b)}
        assert max(held.values()) <= -(-count // (a + b))
        assert min(sizes(current)) >= 1 or count > a + b
        assert max(sizes(current)) - min(sizes(current)) <= 1
        # The same again changes nothing.
        assert assign_simple(members(count, current), partitions) == current


def test_a_member_keeps_what_it_has() -> None:
    before = assign_simple(members(2), {A: range(4)})
    after = assign_simple(members(3, before), {A: range(4)})
    assert all(after[name].get(A, frozenset()) <= before[name][A] for name in before)


def test_topics_that_not_all_are_subscribed_to() -> None:
    both = ShareSubscriber("both", frozenset({A, B}), {})
    one = ShareSubscriber("one", frozenset({A}), {B: frozenset({0})})
    assert assign_simple([both, one], {A: range(2), B: range(2)}) == {
        "both": {A: frozenset({0}), B: frozenset({0, 1})},
        "one": {A: frozenset({1})},
    }


def test_nobody() -> None:
    assert assign_simple([], {A: range(2)}) == {}
