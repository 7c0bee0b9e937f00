"""Two logs that went different ways are brought together by leader epochs alone, and never cut too deep."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import ErrorCode, KafkaError
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.follower import FollowerState
from penstock.replication.partition import LeaderState
from property_examples import examples

Log = list[tuple[int, int]]  # epochs and values; a value is written once


def epochs_of(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        if epoch != epochs.latest:
            epochs.assign(epoch, offset)
    return epochs


@st.composite
def histories(draw: st.DrawFn) -> tuple[Log, Log]:
    """A leader and a follower, as elections leave them: each epoch is written by one leader, and others have copied a
    part of it. Neither has seen all the epochs of the other."""
    logs: list[Log] = [[], [], []]
    value = 0
    for epoch in range(draw(st.integers(1, 7))):
        writer, copier = draw(st.permutations(range(3)))[:2]
        for _ in range(draw(st.integers(0, 4))):
            logs[writer] = [*logs[writer], (epoch, value)]
            value += 1
        if draw(st.booleans()):
            shared = common(logs[writer], logs[copier])
            end = draw(st.integers(shared, len(logs[writer])))
            logs[copier] = logs[writer][:end]
    return logs[0], logs[1]


def common(one: Log, other: Log) -> int:
    """How many records both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


@settings(max_examples=examples(300))
@given(histories())
def test_a_follower_cuts_exactly_to_what_it_shares_with_its_leader(logs: tuple[Log, Log]) -> None:
    leader, follower = logs
    shared = common(leader, follower)
    state = FollowerState(leader_id=1, leader_epoch=99, high_watermark=0)
    leader_epochs = epochs_of(leader)
    leader_epochs.assign(99, len(leader))
    for _ in range(len(follower) + 2):
        epochs = epochs_of(follower)
        if not follower:
            break
        answer = leader_epochs.end_offset_for(epochs.latest, len(leader))
        if answer[0] == epochs.latest and answer[1] >= len(follower):
            break
        cut = state.truncation(answer, epochs, len(follower))
        assert cut.offset >= shared
        del follower[cut.offset :]
    assert len(follower) == shared


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5)),
            st.tuples(st.just("fetch"), st.integers(2, 4), st.integers(0, 30)),
            st.tuples(st.just("flush"), st.integers(0, 30)),
            st.tuples(st.just("shrink")),
            st.tuples(st.just("accept")),
            st.tuples(st.just("refuse")),
            st.tuples(st.just("metadata"), st.sets(st.integers(2, 4))),
            st.tuples(st.just("later"), st.integers(1, 2000)),
        ),
        max_size=40,
    ),
    st.booleans(),
    st.integers(1, 3),
)
def test_the_high_watermark_is_monotonic_and_within_the_maximal_isr(
    steps: list[tuple[object, ...]], counts_flushed: bool, min_isr: int
) -> None:
    now_ms = 0
    leader = LeaderState(
        broker_id=1,
        leader_epoch=1,
        partition_epoch=1,
        replicas=(1, 2, 3, 4),
        isr=(1, 2, 3, 4),
        log_end=0,
        flushed=0,
        counts_flushed=counts_flushed,
        high_watermark=0,
        min_insync_replicas=min_isr,
        lag_max_ms=1000,
        registered=lambda broker_id: 100 + broker_id,
        now_ms=0,
    )
    before = 0
    for step in steps:
        match step:
            case ("append", int(count)):
                leader.appended(leader.log_end + count, now_ms)
            case ("fetch", int(broker_id), int(offset)):
                try:
                    leader.fetched(broker_id, min(offset, leader.log_end), 0, 100 + broker_id, now_ms)
                except KafkaError:
                    continue
                leader.expand(broker_id)
            case ("flush", int(offset)):
                leader.flushed_to(min(offset, leader.log_end), now_ms)
            case ("shrink",):
                leader.shrink(now_ms)
            case ("accept",) if leader.pending is not None:
                isr = [broker_id for broker_id, _ in leader.pending.isr]
                leader.accepted(leader.pending, isr, leader.partition_epoch + 1, now_ms)
            case ("refuse",) if leader.pending is not None:
                leader.refused(leader.pending, ErrorCode.INELIGIBLE_REPLICA)
            case ("metadata", set() as others):
                leader.update(
                    partition_epoch=leader.partition_epoch + 1,
                    replicas=(1, 2, 3, 4),
                    isr=(1, *sorted(others)),
                    now_ms=now_ms,
                )
            case ("later", int(ms)):
                now_ms += ms
                leader.tick(now_ms)
        assert leader.high_watermark >= before
        if leader.high_watermark > before:
            assert leader.has_enough_replicas
            limit = leader.flushed if counts_flushed else leader.log_end
            ends = [leader.followers[broker_id].log_end for broker_id in leader.maximal_isr if broker_id != 1]
            assert leader.high_watermark <= min([limit, *ends])
        before = leader.high_watermark
