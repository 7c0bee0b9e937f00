"""The plan of a migration, carried out by a cluster that does what it is told, and interrupted anywhere."""

from __future__ import annotations

import dataclasses

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.migrate.markers import FOLLOWER_REPLICAS, LEADER_REPLICAS, Notes, notes_from
from penstock.migrate.plan import Phase, Step, plan, undone
from penstock.migrate.state import Broker, ClusterState, Kind, Quorum, Replicas, Voter
from penstock.migrate.voters import LAG_MAX, Change, after, next_step
from penstock.model.ids import TopicPartition

OLD, NEW = (1, 2, 3, 4), (11, 12, 13, 14)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ClusterState, list[int], list[int]]:
    """A cluster, the brokers that leave it, and those that take over. Some partitions have replicas on both kinds."""
    old = OLD[: draw(st.integers(1, len(OLD)))]
    new = NEW[: draw(st.integers(1, len(NEW)))]
    racks = draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=len(new), max_size=len(new)))
    brokers = {each: Broker(each, "h", 1, Kind.KAFKA) for each in old}
    brokers |= {each: Broker(each, "h", 1, Kind.PENSTOCK, rack) for each, rack in zip(new, racks, strict=True)}
    partitions = {}
    for number in range(draw(st.integers(0, 12))):
        everywhere = draw(st.permutations([*old, *(new if draw(st.booleans()) else ())]))
        held = tuple(everywhere[: draw(st.integers(1, min(len(new), len(old))))])
        partitions[TopicPartition("t", number)] = Replicas(held, held, held[0])
    return ClusterState("c", brokers, partitions), list(old), list(new)


def carried_out(state: ClusterState, step: Step, in_sync: bool, sources: bool = True) -> ClusterState:
    """The cluster after the next action of a step. A copy that was started is in sync at once, or is not yet."""
    held = state.partitions[step.partition]
    if step.phase is Phase.COPY:
        originals = held.originals or step.present
        replicas = (*step.present, *step.added)
        # If they are, the copies may be, and no source.
        isr = (replicas if sources else step.target) if in_sync else held.isr
        held = Replicas(replicas, isr, held.leader, () if in_sync else step.added, (), originals)
    elif step.phase in (Phase.COPYING, Phase.WAIT):
        held = dataclasses.replace(held, isr=held.replicas, adding=())
    elif step.phase is Phase.RELEASE:
        held = Replicas(step.target, step.target, step.target[0], originals=held.originals)
    elif held.originals is not None:
        held = dataclasses.replace(held, originals=None)
    return dataclasses.replace(state, partitions={**state.partitions, step.partition: held})


@given(clusters(), st.data())
def test_a_move_ends_where_it_shall_whatever_the_order(
    described: tuple[ClusterState, list[int], list[int]], data: st.DataObject
) -> None:
    state, old, new = described
    before = state
    for _ in range(200):
        steps = plan(state, old, new)
        open_steps = [
            step
            for step in steps
            if step.phase is not Phase.DONE or state.partitions[step.partition].originals is not None
        ]
        if not open_steps:
            break
        for step in steps:
            held, factor = state.partitions[step.partition], len(before.partitions[step.partition].replicas)
            assert len(step.target) == len(set(step.target)) == factor
            assert not set(step.target) & set(old)
            if step.phase is Phase.RELEASE:  # nothing is removed before what replaces it is in sync
                assert set(step.target) < set(held.isr)  # and something is left to compare them with
            else:  # no step but a release removes a replica
                assert set(step.present) <= set(held.replicas)
        # The plan is made anew after every action: as if it had been interrupted there.
        state = carried_out(
            state, data.draw(st.sampled_from(open_steps)), *data.draw(st.tuples(st.booleans(), st.booleans()))
        )
    assert all(step.phase is Phase.DONE for step in plan(state, old, new))
    for partition, held in state.partitions.items():
        was = before.partitions[partition].replicas
        assert set(held.replicas) >= set(was) - set(old)  # least movement: what is there stays


@given(clusters(), st.data())
def test_copies_that_are_not_released_can_be_taken_back(
    described: tuple[ClusterState, list[int], list[int]], data: st.DataObject
) -> None:
    before, old, new = described
    state = before
    for step in plan(state, old, new):
        if step.phase is Phase.COPY and data.draw(st.booleans()):
            state = carried_out(state, step, data.draw(st.booleans()))
    back = undone(state)
    for partition, held in state.partitions.items():
        assert back.get(partition, held.replicas) == before.partitions[partition].replicas


@given(st.integers(1, 4), st.integers(1, 40))
def test_new_brokers_share_the_work(brokers: int, partitions: int) -> None:
    new = NEW[:brokers]
    state = ClusterState(
        "c",
        {each: Broker(each, "h", 1, Kind.KAFKA) for each in (1, *new)},
        {TopicPartition("t", each): Replicas((1,), (1,), 1) for each in range(partitions)},
    )
    counts = [sum(step.target == (each,) for step in plan(state, [1], new)) for each in new]
    assert sum(counts) == partitions and max(counts) - min(counts) <= 1


BROKERS = st.lists(st.integers(0, 99), min_size=2, max_size=6, unique=True).map(tuple)


@given(
    st.dictionaries(
        st.integers(0, 50), BROKERS.flatmap(lambda ids: st.tuples(st.just(ids), st.integers(1, len(ids) - 1)))
    )
)
def test_notes_in_settings_are_read_as_they_were_written(marks: dict[int, tuple[tuple[int, ...], int]]) -> None:
    notes = Notes(
        {index: brokers[:count] for index, (brokers, count) in marks.items()},
        {index: brokers[count:] for index, (brokers, count) in marks.items()},
    )
    assert notes_from(notes.settings()) == notes


@given(
    st.dictionaries(st.integers(0, 3), BROKERS, max_size=3),
    st.dictionaries(st.integers(0, 3), BROKERS, max_size=3),
)
def test_notes_of_other_tools_are_not_ours(
    leaders: dict[int, tuple[int, ...]], others: dict[int, tuple[int, ...]]
) -> None:
    """Kafka's tool writes a broker into one of the lists only."""
    followers = {index: tuple(set(ids) - set(leaders.get(index, ()))) for index, ids in others.items()}
    found = notes_from({LEADER_REPLICAS: text_of(leaders), FOLLOWER_REPLICAS: text_of(followers)})
    assert found == Notes(of_others=bool(text_of(leaders) or text_of(followers)))


def text_of(marks: dict[int, tuple[int, ...]]) -> str:
    return ",".join(f"{index}:{broker}" for index, brokers in marks.items() for broker in brokers)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 4), st.data())
def test_the_quorum_never_shrinks_below_what_it_was(
    voters: int, arriving: int, leader: int, data: st.DataObject
) -> None:
    assume(leader < voters)
    old = [Voter(each, b"", {}, 1000) for each in range(voters)]
    new = [Voter(10 + each, b"", {}, data.draw(st.sampled_from([5, 950, 1000]))) for each in range(arriving)]
    quorum = Quorum(leader, 1000, tuple(old), tuple(new))
    leaving, wanted = [each.node_id for each in old], [each.node_id for each in new]
    removed: list[int] = []
    for _ in range(50):
        step = next_step(quorum, leaving, wanted)
        if step is None:
            break
        if step.change is Change.WAIT:  # it catches up
            quorum = dataclasses.replace(
                quorum, observers=tuple(dataclasses.replace(each, log_end_offset=1000) for each in quorum.observers)
            )
            continue
        if step.change is Change.ADD:
            assert step.voter.log_end_offset >= quorum.high_watermark - LAG_MAX
        else:
            removed.append(step.voter.node_id)
        quorum = after(quorum, step)
        assert len(quorum.voters) >= min(voters, arriving)
        assert len(quorum.voters) <= max(voters, arriving) + 2
    assert {each.node_id for each in quorum.voters} == set(wanted)
    assert removed[-1:] == [leader]
