from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.raft.log_view import Diverging, OffsetAndEpoch, Valid, compare_fetch, truncation_offset
from penstock.raft.messages import VoteAnswer
from penstock.raft.progress import Progress
from penstock.raft.voter_history import VoterHistory
from penstock.raft.voters import VoterSet
from penstock.simulator.quorum.disk import Disk, LogImage, SimulatedRaftLog
from property_examples import examples
from raft_world import Table, key, vote, voter_set


def log_of(image: LogImage) -> SimulatedRaftLog:
    return SimulatedRaftLog(Disk(b"", log=image, synced=image))


@st.composite
def elections(draw: st.DrawFn) -> tuple[LogImage, LogImage]:
    """A leader's log and any other, after epochs in which leaders began on part of what there was."""
    logs = [LogImage()]
    for epoch in range(1, draw(st.integers(1, 6)) + 1):
        parent = draw(st.sampled_from(logs))
        kept = draw(st.integers(0, len(parent.batches)))
        log = log_of(LogImage(batches=parent.batches[:kept]))
        for number in range(draw(st.integers(1, 3))):
            log.append(epoch, (f"{epoch}.{number}",))
        logs.append(log.image)
    other = draw(st.sampled_from(logs))
    cut = draw(st.integers(0, len(other.batches)))
    return logs[-1], LogImage(batches=other.batches[:cut])


@settings(deadline=None)
@given(elections())
def test_truncation_by_epoch_ends_where_the_logs_part(logs: tuple[LogImage, LogImage]) -> None:
    leader, follower = log_of(logs[0]), log_of(logs[1])
    common = 0
    for ours, theirs in zip(logs[0].batches, logs[1].batches, strict=False):
        if ours != theirs:
            break
        common = ours.next_offset
    for _ in range(10):
        verdict = compare_fetch(leader, follower.end_offset, follower.last_epoch)
        if isinstance(verdict, Valid):
            break
        assert isinstance(verdict, Diverging)
        offset = truncation_offset(follower, verdict.end)
        assert offset < follower.end_offset, "every round gets on"
        follower.truncate_to(offset)
    else:
        raise AssertionError("no end of truncation")
    assert follower.end_offset == common, "nothing that agrees is lost, nothing that does not is kept"


@settings(deadline=None)
@given(
    st.integers(1, 5),
    st.integers(0, 5),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12)), max_size=40),
)
def test_the_high_watermark_is_what_a_majority_has(voters: int, start: int, fetches: list[tuple[int, int]]) -> None:
    progress = Progress(key(1), voter_set(*range(1, voters + 1)), start)
    reached = dict.fromkeys(range(1, voters + 1), -1)
    expected = -1
    for node_id, offset in fetches:
        if node_id == 1:
            progress.synced(offset)
        else:
            progress.fetched(key(node_id), offset, 12, 0)
        if node_id in reached:
            reached[node_id] = offset
        count = {end: sum(other >= end for other in reached.values()) for end in reached.values()}
        majority = max((end for end, having in count.items() if having > voters // 2), default=-1)
        moved = majority > max(start, expected)
        assert progress.advance() is moved
        if moved:
            expected = majority
        assert progress.high_watermark == (None if expected < 0 else expected)


Step = tuple[str, int, int]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["vote", "vote", "vote", "ask", "restart", "power"]), st.integers(2, 4), st.integers(1, 6)
        ),
        max_size=25,
    ),
    st.booleans(),
)
def test_one_vote_an_epoch_whatever_happens_in_between(steps: list[Step], static: bool) -> None:
    table = Table(1, 2, 3, 4, 5, static=static)
    given_to: dict[int, int] = {}
    for what, candidate, epoch in steps:
        if what in ("restart", "power"):
            table.restart(power=what == "power")
            continue
        answer = table.ask(vote(candidate, epoch, pre_vote=what == "ask"))
        assert isinstance(answer, VoteAnswer)
        if what == "vote" and answer.granted:
            assert given_to.setdefault(epoch, candidate) == candidate
        assert answer.leader.epoch == table.raft.epoch >= max(given_to, default=0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "truncate", "forget"]), st.integers(0, 9)), max_size=30))
def test_voters_by_offset(steps: list[tuple[str, int]]) -> None:
    history = VoterHistory(voter_set(9, static=True))
    model: dict[int, VoterSet] = {}
    end = 0
    for what, number in steps:
        if what == "add":
            end += 1 + number
            model[end - 1] = voter_set(1, 2 + number)
            history.add_voters(end - 1, model[end - 1])
        elif what == "truncate":
            end = max(0, end - number)
            model = {offset: voters for offset, voters in model.items() if offset < end}
            history.truncate_to(end)
        elif model:
            start = min(end, number)
            history.forget_before(start)
            before = [offset for offset in model if offset <= start]
            model = {offset: voters for offset, voters in model.items() if offset >= max(before, default=0)}
        latest = max(model, default=None)
        assert history.voters == (history.static_voters if latest is None else model[latest])
        assert history.voters_offset == latest
        for offset in range(max(0, min(model, default=0)), end):
            earlier = [known for known in model if known <= offset]
            assert history.voters_at(offset) == (model[max(earlier)] if earlier else None)


def test_logs_that_begin_with_a_snapshot_are_compared_by_its_epoch() -> None:
    image = LogImage(OffsetAndEpoch(10, 3), b"12345678")
    leader = log_of(image)
    leader.append(5, ("a",))
    assert isinstance(compare_fetch(leader, 10, 3), Valid)
    assert compare_fetch(leader, 11, 4) == Diverging(OffsetAndEpoch(10, 3))
    assert compare_fetch(leader, 12, 3) == Diverging(OffsetAndEpoch(10, 3))
    assert compare_fetch(leader, 12, 9) == Diverging(OffsetAndEpoch(11, 5))
    follower = log_of(image)
    follower.append(4, ("b",))
    assert truncation_offset(follower, OffsetAndEpoch(10, 3)) == 10
