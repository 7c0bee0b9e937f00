"""The laws of planning: limits, waiting, splitting, and what counts as lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import ZERO_UUID, TopicPartition
from penstock.spark.source.offsets import Offsets, from_spark, to_spark, topic_ids
from penstock.spark.source.planning import Admission, Limits, Piece, plan, share, split

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 30))
offsets = st.dictionaries(partitions, st.integers(0, 2**62), max_size=12)
sizes = st.one_of(st.integers(0, 5), st.integers(0, 2**40))


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    start = draw(offsets)
    return start, {each: first + draw(sizes) for each, first in start.items()}


@given(offsets)
def test_offsets_survive_the_checkpoint_whatever_their_order(given_offsets: Offsets) -> None:
    backwards = dict(reversed(given_offsets.items()))
    ids = {each.topic: bytes([1]) * 16 for each in given_offsets}
    assert from_spark(to_spark(given_offsets)) == given_offsets
    assert from_spark(to_spark(given_offsets, ids)) == given_offsets
    assert topic_ids(to_spark(given_offsets, ids)) == ids
    assert to_spark(given_offsets, dict.fromkeys(ids, ZERO_UUID)) == to_spark(given_offsets)
    assert repr(to_spark(backwards)) == repr(to_spark(given_offsets))  # Spark compares text


@given(backlogs(), st.integers(1, 2**41))
def test_a_limit_is_used_up_and_nobody_starves(backlog: tuple[Offsets, Offsets], limit: int) -> None:
    start, available = backlog
    end = share(start, available, limit)
    taken = {each: end[each] - start[each] for each in start}
    waiting = {each: available[each] - start[each] for each in start if available[each] > start[each]}
    assert end.keys() == available.keys()
    assert all(0 <= taken[each] <= available[each] - start[each] for each in start)
    assert all(taken[each] >= 1 for each in waiting)
    assert sum(taken.values()) == min(sum(waiting.values()), max(limit, len(waiting)))


@given(backlogs(), st.integers(50, 2**41))
def test_a_limit_is_shared_in_proportion(backlog: tuple[Offsets, Offsets], limit: int) -> None:
    start, available = backlog
    end = share(start, available, limit)
    total = sum(available[each] - start[each] for each in start)
    if total > limit:
        for each in start:
            fair = limit * (available[each] - start[each]) / total
            assert abs(end[each] - start[each] - fair) <= len(start) + 1 + fair * 1e-9


@given(backlogs(), st.integers(1, 100), st.floats(0, 1000), st.lists(st.floats(0, 100), max_size=20))
def test_a_batch_waits_for_enough_but_not_for_ever(
    backlog: tuple[Offsets, Offsets], minimum: int, delay: float, steps: list[float]
) -> None:
    start, available = backlog
    size = sum(available[each] - start[each] for each in start)
    admission = Admission(Limits(offsets_min=minimum, delay_max=delay))
    assert admission.admit(start, available, 0.0) == available  # the first does not wait
    now, last = 0.0, 0.0 if size else -delay
    for step in steps:
        now += step
        end = admission.admit(start, available, now)
        if end != start:
            assert size >= minimum or now - last >= delay
            last = now
        elif size:
            assert size < minimum and now - last < delay
    assert admission.admit(start, available, now, minimum=False) == available


pieces = st.lists(
    st.builds(lambda each, first, size: Piece(each, first, first + size), partitions, st.integers(0, 2**40), sizes),
    max_size=10,
    unique_by=lambda piece: piece.partition,
)


@given(pieces, st.none() | st.integers(1, 50), st.none() | st.integers(2**36, 2**41))
def test_splitting_keeps_every_offset_once_and_in_order(
    given_pieces: list[Piece], partitions_min: int | None, records_max: int | None
) -> None:
    made = split(given_pieces, partitions_min, records_max)
    assert all(piece.size > 0 for piece in made)
    assert records_max is None or all(piece.size <= records_max for piece in made)
    for piece in given_pieces:
        position = piece.first
        for part in (each for each in made if each.partition == piece.partition):
            assert part.first == position
            position = part.end
        assert position == piece.end
    wanted = sum(piece.size > 0 for piece in given_pieces)
    assert len(made) >= wanted
    if partitions_min is not None and all(piece.size > 1000 for piece in given_pieces) and wanted:
        assert len(made) >= min(partitions_min, wanted)
        if records_max is None:
            assert len(made) <= max(partitions_min, wanted) + wanted


@given(offsets, offsets, offsets)
def test_a_plan_reads_what_lies_between_or_says_what_is_lost(start: Offsets, end: Offsets, begins: Offsets) -> None:
    begins = {each: begins.get(each, 0) for each in end}
    planned = plan(start, end, begins)
    by_partition = {piece.partition: piece for piece in planned.pieces}
    lost = " ".join(planned.losses)
    for each, last in end.items():
        first = start.get(each, begins[each])
        if last > first:
            assert by_partition[each] == (each, first, last)
        else:
            assert each not in by_partition
            assert last == first or f"{each}: " in lost
    assert all(f"{each}: " in lost for each in start.keys() - end.keys())
    if start.items() <= end.items():
        topics = {each.topic for each in start}
        added = [each for each in end.keys() - start.keys() if each.topic in topics and begins[each]]
        fell = [each for each in end.keys() - start.keys() if end[each] < begins[each]]
        assert bool(planned.losses) == bool(added or fell)
