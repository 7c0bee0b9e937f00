from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    NOT_INTERESTED,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    LeaderHint,
    UpdateVoter,
    VoterChangeAnswer,
)
from penstock.raft.quorum import QuorumBroken
from penstock.raft.quorum_state import ElectionState
from penstock.raft.ready import InstallSnapshot, StartSnapshot, TruncateTo, WriteSnapshot
from penstock.raft.roles import Follower, Leader, Unattached
from penstock.raft.voters import ReplicaKey
from penstock.simulator.quorum.disk import Snapshot
from penstock.simulator.quorum.node import CLUSTER_ID
from raft_world import SETTINGS, Table, begin_epoch, key, led_by, voter_set, with_settings


def leader_of_three(**changes: object) -> Table:
    """Its log: LeaderChange, KRaftVersion, Voters; so it ends at 3."""
    table = Table(1, 2, 3, **changes)  # type: ignore[arg-type]
    table.elect()
    assert table.end == (3, 1)
    return table


# -- the leader --------------------------------------------------------------------------------------------------------


def test_a_majority_commits() -> None:
    table = leader_of_three()
    assert table.raft.high_watermark == 0 and table.role(Leader).progress.high_watermark is None
    answer = table.fetch(2, 3, 1, wait=50)
    assert answer is not None and answer.high_watermark == 3 and answer.records is None
    assert table.raft.high_watermark == 3
    table.append()
    assert table.raft.high_watermark == 3
    answer = table.fetch(3, 3, 1)
    assert answer is not None and isinstance(answer.records, tuple) and len(answer.records) == 1
    table.fetch(3, 4, 1)
    assert table.raft.high_watermark == 4


def test_the_leader_counts_itself_by_what_it_has_synced() -> None:
    table = leader_of_three()
    table.fetch(2, 3, 1)
    table.auto_sync = False
    table.append()
    table.fetch(2, 4, 1)
    assert table.raft.high_watermark == 3
    # Two others are a majority without it.
    table.fetch(3, 4, 1)
    assert table.raft.high_watermark == 4
    table.append()
    table.fetch(2, 5, 1)
    # The sync that was under way is of the batch before.
    table.sync()
    assert table.raft.high_watermark == 4
    table.sync()
    assert table.raft.high_watermark == 5


def test_what_earlier_leaders_wrote_is_committed_by_the_own_epoch_only() -> None:
    table = Table(1, 2, 3, log=[(1, ["old"]), (2, ["old"])])
    table.elect()
    assert table.role(Leader).progress.epoch_start_offset == 2
    answer = table.fetch(2, 2, 2)
    assert answer is not None and answer.high_watermark == -1
    assert table.raft.high_watermark == 0
    table.fetch(2, 5, 3)
    assert table.raft.high_watermark == 5


def test_observers_and_strangers_do_not_count() -> None:
    table = leader_of_three()
    table.fetch(7, 3, 1)
    table.fetch(-1, 3, 1)
    stranger = Fetch(cluster_id=None, replica=ReplicaKey(2, b"x" * 16), leader_epoch=1, offset=3, last_fetched_epoch=1)
    table.ask(stranger)
    assert table.raft.high_watermark == 0
    progress = table.role(Leader).progress
    assert set(progress.observers) == {key(7), stranger.replica}
    table.now += 300_000
    table.role(Leader).check_quorum_deadline = table.now + 1000
    table.node.tick()
    assert table.role(Leader).progress.observers == {}


def test_a_fetch_waits_for_records() -> None:
    table = leader_of_three()
    table.fetch(2, 3, 1)
    assert table.fetch(2, 3, 1, known=3, wait=50) is None
    table.append()
    (_, answer) = table.given[-1]
    assert isinstance(answer, FetchAnswer) and isinstance(answer.records, tuple) and len(answer.records) == 1


def test_a_fetch_waits_for_a_new_high_watermark() -> None:
    table = leader_of_three()
    table.fetch(3, 3, 1)
    table.append()
    assert table.fetch(3, 4, 1, known=4, wait=50) is None
    table.append()
    table.fetch(3, 5, 1)
    assert table.fetch(2, 5, 1, known=NOT_INTERESTED, wait=50) is None
    assert table.fetch(2, 5, 1, known=4) == FetchAnswer(leader=led_by(1, 1), high_watermark=5, log_start_offset=0)


def test_a_fetch_does_not_wait_for_ever() -> None:
    table = leader_of_three()
    table.fetch(2, 3, 1)
    assert table.fetch(2, 3, 1, known=3, wait=50) is None
    table.wait(50)
    assert table.given[-1][1] == FetchAnswer(leader=led_by(1, 1), high_watermark=3, log_start_offset=0)
    # One of them a replica: it has given the first up.
    assert table.fetch(2, 3, 1, known=3, wait=50) is None
    before = len(table.given)
    assert table.fetch(2, 3, 1, known=3, wait=50) is None
    assert len(table.given) == before + 1 and len(table.role(Leader).parked) == 1


def test_no_more_fetches_are_held_than_allowed() -> None:
    table = leader_of_three(settings=with_settings(parked_fetches_max=1))
    table.fetch(2, 3, 1)
    assert table.fetch(7, 3, 1, known=3, wait=50) is None
    assert table.fetch(8, 3, 1, known=3, wait=50) is not None


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Fetch(cluster_id="another", replica=key(2), leader_epoch=1, offset=3, last_fetched_epoch=1), "CLUSTER"),
        (Fetch(cluster_id=CLUSTER_ID, replica=key(2), leader_epoch=0, offset=0, last_fetched_epoch=0), "FENCED"),
        (Fetch(cluster_id=CLUSTER_ID, replica=key(2), leader_epoch=2, offset=3, last_fetched_epoch=1), "UNKNOWN"),
        (Fetch(cluster_id=CLUSTER_ID, replica=key(2), leader_epoch=1, offset=-1, last_fetched_epoch=1), "INVALID"),
        (Fetch(cluster_id=CLUSTER_ID, replica=key(2), leader_epoch=1, offset=3, last_fetched_epoch=2), "INVALID"),
        (Fetch(cluster_id=CLUSTER_ID, replica=key(1), leader_epoch=1, offset=3, last_fetched_epoch=1), "INVALID"),
    ],
)
def test_fetches_that_are_refused(request_: Fetch, error: str) -> None:
    table = leader_of_three()
    codes = {
        "CLUSTER": ErrorCode.INCONSISTENT_CLUSTER_ID,
        "FENCED": ErrorCode.FENCED_LEADER_EPOCH,
        "UNKNOWN": ErrorCode.UNKNOWN_LEADER_EPOCH,
        "INVALID": ErrorCode.INVALID_REQUEST,
    }
    assert table.ask(request_) == FetchAnswer(error=codes[error], leader=led_by(1, 1))


def test_who_does_not_lead_says_who_does() -> None:
    table = Table(1, 2, 3)
    table.follow(2, epoch=4)
    assert table.fetch(3, 0, 0) == FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=led_by(2, 4))


def test_a_diverging_log_is_told_where() -> None:
    table = Table(1, 2, 3, log=[(1, ["a"]), (1, ["b"]), (4, ["c"])])
    table.elect()
    for offset, last_epoch, diverging in [
        (5, 1, OffsetAndEpoch(2, 1)),
        (3, 2, OffsetAndEpoch(2, 1)),
        (4, 4, OffsetAndEpoch(3, 4)),
    ]:
        answer = table.fetch(2, offset, last_epoch)
        assert answer is not None and answer.diverging == diverging and answer.records is None
    # Being told is no acknowledgement.
    assert table.role(Leader).progress.voters[2].end_offset is None


def snapshot_of(table: Table) -> Snapshot:
    """Commit everything, and let a snapshot take the place of the log."""
    table.fetch(2, table.end.offset, table.end.epoch)
    assert table.node.snapshot(trim=True)
    (snapshot,) = table.node.log.image.snapshots
    return snapshot


def test_what_is_no_longer_in_the_log_comes_as_a_snapshot() -> None:
    table = leader_of_three()
    snapshot = snapshot_of(table)
    table.append()
    for offset, last_epoch in [(0, 0), (1, 1), (3, 0)]:
        answer = table.fetch(3, offset, last_epoch)
        assert answer is not None and answer.snapshot == snapshot.id == (3, 1)
    valid = table.fetch(3, 3, 1)
    assert valid is not None and valid.snapshot is None and valid.records is not None


def test_snapshots_are_given_in_pieces() -> None:
    table = leader_of_three()
    snapshot = snapshot_of(table)
    data = snapshot.to_bytes()

    def fetch(position: int, identity: OffsetAndEpoch = snapshot.id, epoch: int = 1) -> FetchSnapshotAnswer:
        answer = table.ask(
            FetchSnapshot(
                cluster_id=CLUSTER_ID,
                replica=key(3),
                leader_epoch=epoch,
                snapshot=identity,
                position=position,
                max_bytes=20,
            )
        )
        assert isinstance(answer, FetchSnapshotAnswer)
        return answer

    first = fetch(0)
    assert (first.data, first.position, first.size) == (data[:20], 0, len(data))
    assert fetch(20).data == data[20:40]
    assert fetch(len(data)).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert fetch(0, OffsetAndEpoch(2, 1)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert fetch(0, epoch=0).error is ErrorCode.FENCED_LEADER_EPOCH


# -- the follower ------------------------------------------------------------------------------------------------------


def test_a_follower_fetches_from_what_it_has_synced() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    assert fetch.to.node_id == 2
    assert fetch.request == Fetch(
        cluster_id=CLUSTER_ID,
        replica=key(1),
        leader_epoch=1,
        offset=0,
        last_fetched_epoch=0,
        high_watermark=0,
        max_wait_ms=50,
        max_bytes=SETTINGS.fetch_max_bytes,
    )
    table.auto_sync = False
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=1, records=table.records(1, "a", "b")))
    assert table.end == (2, 1) and table.raft.high_watermark == 1
    assert table.take(Fetch) == []
    table.sync()
    _, again = table.take_one(Fetch)
    assert (again.offset, again.last_fetched_epoch, again.high_watermark) == (2, 1, 1)


def test_an_observer_need_not_sync() -> None:
    table = Table(2, 3, node_id=1, can_become_voter=False, formatted=False)
    table.auto_sync = False
    fetch = table.follow(2, epoch=1)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=0, records=table.records(1, "a")))
    assert table.take_one(Fetch)[1].offset == 1


def test_the_high_watermark_is_not_ahead_of_the_log() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=50, records=table.records(1, "a", "b")))
    assert table.raft.high_watermark == 2
    (fetch, _) = table.take_one(Fetch)
    with pytest.raises(QuorumBroken, match="committed up to 1"):
        table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=1))


def test_a_follower_truncates_by_epoch_and_asks_again() -> None:
    table = Table(1, 2, 3, log=[(1, ["a"]), (2, ["b"]), (2, ["c"])], election=ElectionState(2))
    fetch = table.follow(2, epoch=3)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 3), high_watermark=1, diverging=OffsetAndEpoch(5, 1)))
    assert [effect for step in table.steps for effect in step.log] == [TruncateTo(1)]
    assert table.end == (1, 1)
    _, again = table.take_one(Fetch)
    assert (again.offset, again.last_fetched_epoch) == (1, 1)


def test_nothing_committed_is_truncated() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=2, records=table.records(1, "a", "b")))
    (fetch, _) = table.take_one(Fetch)
    with pytest.raises(QuorumBroken, match="committed below 2"):
        table.answer(fetch, FetchAnswer(leader=led_by(2, 1), diverging=OffsetAndEpoch(1, 1)))


def test_damaged_records_are_asked_for_again_after_a_while() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=0, records=()))
    assert [send.to.node_id for send in table.take(Fetch)] != [2]


def download(table: Table, snapshot: Snapshot) -> None:
    """Answer what the node asks for, until it has all of it."""
    data = snapshot.to_bytes()
    while sends := table.take(FetchSnapshot):
        (send,) = sends
        request = send.request
        assert isinstance(request, FetchSnapshot) and request.snapshot == snapshot.id
        table.answer(
            send,
            FetchSnapshotAnswer(
                leader=led_by(2, 3),
                snapshot=snapshot.id,
                size=len(data),
                position=request.position,
                data=data[request.position : request.position + request.max_bytes],
            ),
        )


def test_a_snapshot_replaces_the_log() -> None:
    table = Table(1, 2, 3, log=[(1, ["a"]), (2, ["b"])], election=ElectionState(2))
    snapshot = Snapshot(OffsetAndEpoch(9, 3), b"12345678", 1, voter_set(1, 2, 3, 4))
    fetch = table.follow(2, epoch=3)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 3), snapshot=snapshot.id))
    download(table, snapshot)
    effects = [effect for step in table.steps for effect in step.log]
    assert effects[0] == StartSnapshot(snapshot.id) and effects[-1] == InstallSnapshot(snapshot.id)
    assert len([effect for effect in effects if isinstance(effect, WriteSnapshot)]) > 1
    assert table.end == (9, 3) and table.raft.high_watermark == 9
    assert table.raft.voters.node_ids == (1, 2, 3, 4) and table.raft.voters_at(8) == snapshot.voters
    _, request = table.take_one(Fetch)
    assert (request.offset, request.last_fetched_epoch) == (9, 3)
    table.restart()
    assert table.raft.voters.node_ids == (1, 2, 3, 4) and table.raft.high_watermark == 9


@pytest.mark.parametrize(
    "answer",
    [
        FetchSnapshotAnswer(error=ErrorCode.SNAPSHOT_NOT_FOUND, leader=led_by(2, 3)),
        FetchSnapshotAnswer(leader=led_by(2, 3), snapshot=OffsetAndEpoch(9, 3), size=90, position=7, data=b"x"),
        FetchSnapshotAnswer(leader=led_by(2, 3), snapshot=OffsetAndEpoch(8, 3), size=90, data=b"x"),
        FetchSnapshotAnswer(leader=led_by(2, 3), snapshot=OffsetAndEpoch(9, 3), size=90),
    ],
)
def test_a_snapshot_that_does_not_come_is_given_up(answer: FetchSnapshotAnswer) -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=3)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 3), snapshot=OffsetAndEpoch(9, 3)))
    table.answer(table.take_one(FetchSnapshot)[0], answer)
    table.wait(SETTINGS.retry_backoff_ms)
    assert table.take(FetchSnapshot) == [] and table.take(Fetch)
    assert table.role(Follower).download is None


def test_a_snapshot_before_what_is_committed_is_none() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=2, records=table.records(1, "a", "b")))
    with pytest.raises(QuorumBroken, match="offers a snapshot of 1"):
        table.answer(table.take_one(Fetch)[0], FetchAnswer(leader=led_by(2, 1), snapshot=OffsetAndEpoch(1, 1)))


# -- finding the leader ------------------------------------------------------------------------------------------------


def test_an_observer_finds_the_leader_from_any_node() -> None:
    table = Table(2, 3, node_id=7, can_become_voter=False, formatted=False)
    send, request = table.take_one(Fetch)
    assert send.to.node_id < -1 and request.leader_epoch == 0
    table.answer(send, FetchAnswer(error=ErrorCode.FENCED_LEADER_EPOCH, leader=led_by(3, 5)))
    assert table.role(Follower).leader_id == 3 and table.persisted == ElectionState(5, leader_id=3)
    send, request = table.take_one(Fetch)
    assert (send.to.node_id, send.to.host, request.leader_epoch) == (3, "node-3", 5)
    # It never stands for election.
    table.wait(10 * SETTINGS.fetch_timeout_ms)
    table.role(Follower)


def test_the_answer_that_names_the_leader_may_bring_records() -> None:
    table = Table(2, 3, node_id=7, election=ElectionState(5), formatted=False)
    send, _ = table.take_one(Fetch)
    table.answer(send, FetchAnswer(leader=led_by(3, 5), high_watermark=1, records=table.records(5, "a")))
    assert table.role(Follower).leader_id == 3 and table.raft.high_watermark == 1


def test_a_leader_without_an_address_is_waited_for() -> None:
    table = Table(2, 3, node_id=7, can_become_voter=False, formatted=False)
    send, _ = table.take_one(Fetch)
    table.answer(send, FetchAnswer(error=ErrorCode.FENCED_LEADER_EPOCH, leader=LeaderHint(5, 3)))
    assert table.role(Unattached).leader_id == 3
    table.wait(SETTINGS.retry_backoff_ms)
    send = table.take(Fetch)[-1]
    table.answer(send, FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=led_by(3, 5)))
    assert table.role(Follower).leader_id == 3


def test_who_knows_nothing_is_left_alone_for_a_moment() -> None:
    table = Table(2, 3, node_id=7, can_become_voter=False, formatted=False, election=ElectionState(5))
    asked = set()
    for _ in range(2):
        send, _ = table.take_one(Fetch)
        asked.add(send.to.host)
        table.answer(send, FetchAnswer(error=ErrorCode.UNKNOWN_LEADER_EPOCH, leader=LeaderHint(4)))
    assert asked == {"node-2", "node-3"} and table.take(Fetch) == []
    table.wait(SETTINGS.retry_backoff_ms)
    assert len(table.take(Fetch)) == 1


def test_a_silent_leader_is_asked_about_elsewhere() -> None:
    table = Table(1, 2, 3, settings=with_settings(fetch_timeout_ms=1000))
    table.follow(2, epoch=1)
    table.wait(SETTINGS.request_timeout_ms)
    # Again and again, until another leads, or the silent one is worth another time-out.
    for _ in range(4):
        (send,) = table.take(Fetch)
        assert send.to.node_id < -1
        table.answer(send, FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=led_by(2, 1)))
        table.wait(SETTINGS.retry_backoff_ms)
    (send,) = table.take(Fetch)
    table.answer(send, FetchAnswer(error=ErrorCode.FENCED_LEADER_EPOCH, leader=led_by(3, 2)))
    assert table.role(Follower).leader_id == 3


def test_late_answers_are_ignored() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    table.ask(begin_epoch(3, 2))
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=0, records=table.records(1, "late")))
    assert table.end == (0, 0) and table.role(Follower).leader_id == 3
    table.node.failed(fetch.request_id, is_dead=True)
    assert table.role(Follower).leader_id == 3


def test_a_voter_of_another_cluster_is_not_believed() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    table.answer(fetch, FetchAnswer(error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    assert table.role(Follower).leader_id == 2
    assert [send.to.node_id for send in table.take(Fetch)] != [2]


@pytest.mark.parametrize(
    "answer", [VoterChangeAnswer(leader=led_by(2, 1)), VoterChangeAnswer(error=ErrorCode.UNSUPPORTED_VERSION)]
)
def test_a_follower_with_fixed_voters_introduces_itself_once(answer: VoterChangeAnswer) -> None:
    table = Table(1, 2, 3, static=True, settings=with_settings(fetch_timeout_ms=100))
    fetch = table.follow(2, epoch=1)
    for _ in range(4):
        table.now += 50
        table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=0))
        if updates := table.take(UpdateVoter):
            break
        fetch = table.take(Fetch)[-1]
    (update,) = updates
    assert isinstance(update.request, UpdateVoter) and update.request.voter == key(1)
    table.answer(update, answer)
    assert table.role(Follower).has_updated_leader
