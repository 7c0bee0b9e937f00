"""The merge of state batches against a merge that looks at every offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.share_state.batches import Batch, combine

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


@st.composite
def a_batch(draw: st.DrawFn) -> Batch:
    first = draw(st.integers(0, 40))
    last = first + draw(st.integers(0, 12))
    return Batch(first, last, draw(st.sampled_from((AVAILABLE, ACKNOWLEDGED, ARCHIVED))), draw(st.integers(1, 3)))


def by_offset(batches: list[Batch]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(batch.first, batch.last + 1):
            found[offset] = max(batch.rank, found.get(offset, batch.rank))
    return found


@given(updates=st.lists(st.tuples(st.lists(a_batch(), max_size=5), st.integers(0, 4)), max_size=8))
def test_the_merge_is_the_merge_of_every_offset(updates: list[tuple[list[Batch], int]]) -> None:
    merged: list[Batch] = []
    everything: list[Batch] = []
    start_offset = 0
    for update, step in updates:
        start_offset += step
        everything += update
        merged = combine(merged, update, start_offset)
        wanted = {offset: rank for offset, rank in by_offset(everything).items() if offset >= start_offset}
        assert by_offset(merged) == wanted
        assert all(left.last < right.first for left, right in pairwise(merged))
        assert not any(left.last + 1 == right.first and left.rank == right.rank for left, right in pairwise(merged))


def test_an_unknown_start_keeps_everything() -> None:
    assert combine([], [Batch(0, 4, AVAILABLE, 1)], -1) == [Batch(0, 4, AVAILABLE, 1)]


def test_a_higher_delivery_count_wins_over_a_later_state() -> None:
    assert combine([Batch(0, 9, ACKNOWLEDGED, 1)], [Batch(3, 4, AVAILABLE, 2)], 0) == [
        Batch(0, 2, ACKNOWLEDGED, 1),
        Batch(3, 4, AVAILABLE, 2),
        Batch(5, 9, ACKNOWLEDGED, 1),
    ]
