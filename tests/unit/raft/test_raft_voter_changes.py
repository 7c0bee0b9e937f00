from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    AddVoter,
    Answer,
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    Fetch,
    FetchAnswer,
    KRaftVersions,
    KRaftVersionsAnswer,
    LeaderHint,
    RemoveVoter,
    Request,
    UpdateVoter,
    Vote,
    VoteAnswer,
    VoterChangeAnswer,
)
from penstock.raft.quorum_state import ElectionState
from penstock.raft.ready import AppendControl
from penstock.raft.roles import Follower, Leader, Prospective, Resigned, Unattached
from penstock.raft.voters import ReplicaKey, Voter, VoterSet
from penstock.simulator.quorum.disk import Batch
from penstock.simulator.quorum.node import CLUSTER_ID
from raft_world import SETTINGS, Table, directory, endpoints, key, led_by, voter_set, with_settings

SUPPORTED = KRaftVersionsAnswer(kraft_versions=(0, 1))


def add(node_id: int, *, wait: bool = True) -> AddVoter:
    return AddVoter(cluster_id=CLUSTER_ID, voter=key(node_id), endpoints=endpoints(node_id), ack_when_committed=wait)


def remove(node_id: int) -> RemoveVoter:
    return RemoveVoter(cluster_id=CLUSTER_ID, voter=key(node_id))


def leader(*voters: int, **changes: object) -> Table:
    """With everything so far committed, all others caught up, and node 7 fetching as an observer."""
    table = Table(*voters, **changes)  # type: ignore[arg-type]
    if len(voters) > 1:
        table.elect()
    for send in table.take(BeginQuorumEpoch):
        table.answer(send, BeginQuorumEpochAnswer(leader=led_by(1, 1)))
    catch_up(table, *voters[1:], 7)
    assert table.raft.high_watermark == table.end.offset
    return table


def catch_up(table: Table, *node_ids: int) -> None:
    for node_id in node_ids:
        table.fetch(node_id, table.end.offset, table.end.epoch)


def answer_to(table: Table, request: Request) -> Answer:
    answer = table.ask(request)
    assert answer is not None, "it waits"
    return answer


def refusal(table: Table, request: Request) -> ErrorCode:
    answer = answer_to(table, request)
    assert isinstance(answer, VoterChangeAnswer)
    return answer.error


def last_voters(table: Table) -> VoterSet:
    """As of the last record of the log."""
    batch = table.node.log.image.batches[-1]
    record = batch.payloads[-1]
    assert isinstance(record, VotersRecord)
    return VoterSet.from_record(record)


def test_a_voter_is_added_when_it_has_told_its_versions() -> None:
    table = leader(1, 2, 3)
    assert table.ask(add(7)) is None
    send, _ = table.take_one(KRaftVersions)
    assert send.to.host == "node-7" and table.raft.voters == voter_set(1, 2, 3)
    table.answer(send, SUPPORTED)
    # Effective at once: three of four have to have it.
    assert last_voters(table).node_ids == table.raft.voters.node_ids == (1, 2, 3, 7)
    catch_up(table, 2)
    assert table.raft.high_watermark < table.end.offset
    catch_up(table, 7)
    assert table.raft.high_watermark == table.end.offset
    assert table.given[-2][1] == VoterChangeAnswer(leader=led_by(1, 1))


def test_an_only_voter_can_be_joined() -> None:
    table = leader(1)
    table.wait(10 * SETTINGS.fetch_timeout_ms)
    catch_up(table, 7)
    table.ask(add(7, wait=False))
    table.answer(table.take_one(KRaftVersions)[0], SUPPORTED)
    assert table.given[-1][1] == VoterChangeAnswer(leader=led_by(1, 1))
    assert table.raft.voters.node_ids == (1, 7) and table.raft.high_watermark < table.end.offset
    # The new voter has the full time to fetch before the leader thinks itself alone.
    table.wait(SETTINGS.fetch_timeout_ms)
    catch_up(table, 7)
    assert table.raft.high_watermark == table.end.offset


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add(2), ErrorCode.DUPLICATE_VOTER),
        (replace(add(2), voter=ReplicaKey(2, b"x" * 16)), ErrorCode.DUPLICATE_VOTER),
        (replace(add(7), voter=ReplicaKey(7)), ErrorCode.INVALID_REQUEST),
        (replace(add(7), endpoints=()), ErrorCode.INVALID_REQUEST),
        (replace(add(7), cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (remove(9), ErrorCode.VOTER_NOT_FOUND),
        (replace(remove(2), voter=ReplicaKey(2, b"x" * 16)), ErrorCode.VOTER_NOT_FOUND),
        (replace(remove(2), voter=ReplicaKey(2)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_changes_that_are_refused(request_: Request, error: ErrorCode) -> None:
    assert refusal(leader(1, 2, 3), request_) is error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (KRaftVersionsAnswer(kraft_versions=(0, 0)), ErrorCode.INVALID_REQUEST),
        (KRaftVersionsAnswer(), ErrorCode.INVALID_REQUEST),
        (KRaftVersionsAnswer(error=ErrorCode.UNSUPPORTED_VERSION), ErrorCode.REQUEST_TIMED_OUT),
        (None, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_voter_that_does_not_speak_the_language_stays_out(
    answer: KRaftVersionsAnswer | None, error: ErrorCode
) -> None:
    table = leader(1, 2, 3)
    table.ask(add(7))
    send, _ = table.take_one(KRaftVersions)
    if answer is None:
        table.node.failed(send.request_id, is_dead=True)
    else:
        table.answer(send, answer)
    given = table.given[-1][1]
    assert isinstance(given, VoterChangeAnswer) and given.error is error
    assert table.raft.voters.node_ids == (1, 2, 3)


def test_a_voter_that_never_fetched_stays_out() -> None:
    table = leader(1, 2, 3)
    table.ask(add(8))
    table.answer(table.take_one(KRaftVersions)[0], SUPPORTED)
    given = table.given[-1][1]
    assert isinstance(given, VoterChangeAnswer) and given.error is ErrorCode.REQUEST_TIMED_OUT


def test_a_change_that_takes_too_long_is_answered() -> None:
    table = leader(1, 2, 3)
    table.ask(add(7))
    table.wait(SETTINGS.request_timeout_ms)
    given = table.given[-1][1]
    assert isinstance(given, VoterChangeAnswer) and given.error is ErrorCode.REQUEST_TIMED_OUT
    # Whatever comes now comes too late.
    assert table.role(Leader).change is None and table.raft.voters.node_ids == (1, 2, 3)


def test_one_change_at_a_time() -> None:
    table = leader(1, 2, 3)
    assert table.ask(remove(2)) is None
    assert refusal(table, add(7)) is ErrorCode.REQUEST_TIMED_OUT
    # Not even after the first was given up: it may still be committed.
    table.wait(SETTINGS.request_timeout_ms)
    assert refusal(table, remove(3)) is ErrorCode.REQUEST_TIMED_OUT
    catch_up(table, 3)
    # What is left is a majority by itself.
    assert refusal(table, remove(3)) is ErrorCode.NONE
    assert table.raft.voters.node_ids == (1,)


def test_no_change_before_the_own_epoch_is_committed() -> None:
    table = Table(1, 2, 3)
    table.elect()
    assert refusal(table, remove(2)) is ErrorCode.REQUEST_TIMED_OUT
    catch_up(table, 2)
    assert table.ask(remove(2)) is None


def test_a_voter_is_removed() -> None:
    table = leader(1, 2, 3)
    assert table.ask(remove(2)) is None
    assert table.raft.voters.node_ids == (1, 3)
    catch_up(table, 2)
    assert table.raft.high_watermark < table.end.offset
    catch_up(table, 3)
    assert table.raft.high_watermark == table.end.offset
    assert VoterChangeAnswer(leader=led_by(1, 1)) in [answer for _, answer in table.given]


def test_the_last_voter_stays() -> None:
    assert refusal(leader(1), remove(1)) is ErrorCode.VOTER_NOT_FOUND


@pytest.mark.parametrize("in_time", [True, False])
def test_a_leader_that_removed_itself_resigns_when_that_is_committed(in_time: bool) -> None:
    table = leader(1, 2, 3)
    table.ask(remove(1))
    assert table.raft.voters.node_ids == (2, 3)
    if not in_time:
        table.wait(SETTINGS.request_timeout_ms)
    catch_up(table, 2)
    # It does not count itself any more.
    table.role(Leader)
    catch_up(table, 3)
    table.role(Resigned)
    table.wait(SETTINGS.election_timeout_ms)
    table.role(Unattached)
    table.wait(10 * SETTINGS.election_timeout_ms)
    table.role(Unattached)


def test_a_leader_that_removed_itself_and_crashed_leads_once_more() -> None:
    """Of two voters, the one that stays would not be elected: its log is the shorter one."""
    table = leader(1, 2)
    table.ask(remove(1))
    table.restart()
    assert not table.raft.is_voter
    table.role(Resigned)
    table.wait(2 * SETTINGS.election_timeout_ms)
    assert table.role(Prospective).epoch == 2
    for send in table.take(Vote):
        table.answer(send, VoteAnswer(leader=LeaderHint(2), granted=True))
    for send in table.take(Vote):
        assert isinstance(send.request, Vote) and not send.request.pre_vote
        table.answer(send, VoteAnswer(leader=LeaderHint(3), granted=True))
    assert table.role(Leader).epoch == 3
    # It does not put itself back.
    assert table.raft.voters.node_ids == (2,)
    catch_up(table, 2)
    table.role(Resigned)


def test_who_knows_to_be_removed_does_not_stand() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    removed = Batch(0, 1, (KRaftVersionRecord(kraft_version=1), voter_set(2, 3).to_record()), b"removed.")
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=0, records=(removed,)))
    assert not table.raft.is_voter and table.deadline is not None
    (fetch, _) = table.take_one(Fetch)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=2))
    table.wait(10 * SETTINGS.fetch_timeout_ms)
    table.role(Follower)


def test_voters_that_are_truncated_no_longer_count() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    added = Batch(0, 1, (voter_set(1, 2, 3, 4).to_record(),), b"added...")
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=0, records=(added,)))
    assert table.raft.voters == voter_set(1, 2, 3, 4) and table.raft.kraft_version == 1
    fetch = table.follow(3, epoch=2)
    table.answer(fetch, FetchAnswer(leader=led_by(3, 2), diverging=OffsetAndEpoch(0, 0)))
    assert table.raft.voters.node_ids == (1, 2, 3)


def test_losing_the_lead_answers_who_waits() -> None:
    table = leader(1, 2, 3)
    table.ask(remove(2))
    table.ask(
        Vote(cluster_id=None, voter=None, candidate=key(3), epoch=5, last_epoch=4, last_offset=99, pre_vote=False)
    )
    given = table.given[-2][1]
    assert given == VoterChangeAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderHint(5))
    assert refusal(table, add(7)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- what voters tell of themselves ------------------------------------------------------------------------------------


def update(node_id: int, port: int = 7777, epoch: int = 1) -> UpdateVoter:
    moved = tuple(endpoint._replace(port=port) for endpoint in endpoints(node_id))
    return UpdateVoter(
        cluster_id=CLUSTER_ID, leader_epoch=epoch, voter=key(node_id), endpoints=moved, kraft_versions=(0, 1)
    )


def test_a_voter_that_moved_is_updated() -> None:
    table = leader(1, 2, 3)
    assert table.ask(update(2)) is None
    send, _ = table.take_one(KRaftVersions)
    assert send.to.port == 7777
    table.answer(send, SUPPORTED)
    # Answered at once: it has to fetch for this to be committed.
    assert table.given[-1][1] == VoterChangeAnswer(leader=led_by(1, 1))
    assert last_voters(table).endpoints(2)[0].port == 7777
    assert refusal(table, add(7)) is ErrorCode.REQUEST_TIMED_OUT
    catch_up(table, 3)
    assert table.role(Leader).change is None


@pytest.mark.parametrize(
    ("request_", "answer", "error"),
    [
        (update(2, epoch=0), SUPPORTED, ErrorCode.FENCED_LEADER_EPOCH),
        (update(2, epoch=2), SUPPORTED, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (replace(update(2), kraft_versions=(1, 0)), SUPPORTED, ErrorCode.INVALID_REQUEST),
        (replace(update(2), endpoints=()), SUPPORTED, ErrorCode.INVALID_REQUEST),
        (update(2), KRaftVersionsAnswer(kraft_versions=(1, 1)), ErrorCode.INVALID_REQUEST),
        (update(9), SUPPORTED, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_updates_that_are_refused(request_: UpdateVoter, answer: KRaftVersionsAnswer, error: ErrorCode) -> None:
    table = leader(1, 2, 3)
    given = table.ask(request_)
    if given is None:
        table.answer(table.take_one(KRaftVersions)[0], answer)
        given = table.given[-1][1]
    assert isinstance(given, VoterChangeAnswer) and given.error is error


def follow_for(table: Table, milliseconds: int, *, epoch: int = 1) -> None:
    """Everything the follower asks is answered with nothing."""
    send = table.follow(2, epoch=epoch)
    until = table.now + milliseconds
    while table.now < until:
        table.now += 50
        table.answer(send, FetchAnswer(leader=led_by(2, epoch), high_watermark=0))
        sends = table.take(Fetch)
        if not sends:
            return
        send = sends[-1]


def test_a_voter_tells_the_leader_that_it_moved() -> None:
    table = Table(1, 2, 3, start=False)
    elsewhere = tuple(endpoint._replace(port=1) for endpoint in endpoints(1))
    voters = voter_set(2, 3).with_voter(Voter(key(1), elsewhere))
    table.node.disk.bootstrap = (KRaftVersionRecord(kraft_version=1), voters.to_record())
    table.node.start()
    follow_for(table, 3 * SETTINGS.fetch_timeout_ms)
    send, request = table.take_one(UpdateVoter)
    assert request.endpoints == endpoints(1) and send.to.node_id == 2
    table.answer(send, VoterChangeAnswer(leader=led_by(2, 1)))
    assert table.take(Fetch)


def test_a_leader_that_moved_says_so_in_its_first_batch() -> None:
    table = Table(1, 2, 3, start=False)
    elsewhere = tuple(endpoint._replace(port=1) for endpoint in endpoints(1))
    voters = voter_set(2, 3).with_voter(Voter(key(1), elsewhere))
    table.node.log.append(1, (KRaftVersionRecord(kraft_version=1), voters.to_record()))
    table.node.disk.synced = table.node.disk.log
    table.node.start()
    table.elect()
    assert last_voters(table).endpoints(1) == endpoints(1)


def test_a_new_controller_joins_by_itself() -> None:
    table = Table(2, 3, node_id=1, settings=with_settings(auto_join=True))
    follow_for(table, 3 * SETTINGS.fetch_timeout_ms)
    send, request = table.take_one(AddVoter)
    assert request == add(1, wait=False) and send.to.node_id == 2
    table.answer(send, VoterChangeAnswer(error=ErrorCode.REQUEST_TIMED_OUT))
    table.wait(SETTINGS.retry_backoff_ms)
    assert table.take(Fetch)


def test_a_new_disk_removes_the_voter_it_was() -> None:
    table = Table(1, 2, 3, start=False, settings=with_settings(auto_join=True))
    table.node.disk.directory_id = directory(9)
    table.node.start()
    assert not table.raft.is_voter
    follow_for(table, 3 * SETTINGS.fetch_timeout_ms)
    _, request = table.take_one(RemoveVoter)
    assert request == remove(1)


def test_without_auto_join_an_observer_stays_one() -> None:
    table = Table(2, 3, node_id=1)
    follow_for(table, 5 * SETTINGS.fetch_timeout_ms)
    assert table.take(AddVoter) == [] and isinstance(table.raft.role, Follower)


# -- kraft.version -----------------------------------------------------------------------------------------------------


def test_fixed_voters_cannot_be_changed() -> None:
    table = leader(1, 2, 3, static=True)
    assert refusal(table, add(7)) is ErrorCode.UNSUPPORTED_VERSION
    assert refusal(table, remove(2)) is ErrorCode.UNSUPPORTED_VERSION


def test_the_step_to_voters_in_the_log_needs_to_know_all_of_them() -> None:
    table = leader(1, 2, 3, static=True)
    with pytest.raises(KafkaError) as refused:
        table.node.step(lambda raft: raft.upgrade_kraft_version(table.now, 1))
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    for node_id in (2, 3):
        table.ask(update(node_id))
        table.answer(table.take_one(KRaftVersions)[0], SUPPORTED)
        assert table.given[-1][1] == VoterChangeAnswer(leader=led_by(1, 1))
    end = table.end.offset
    table.node.step(lambda raft: raft.upgrade_kraft_version(table.now, 1, validate_only=True))
    assert table.end.offset == end
    table.node.step(lambda raft: raft.upgrade_kraft_version(table.now, 1))
    (append,) = [effect for step in table.steps[-3:] for effect in step.log]
    assert isinstance(append, AppendControl) and append.records[0] == KRaftVersionRecord(kraft_version=1)
    assert [voter.key for voter in last_voters(table)] == [key(1), key(2), key(3)]
    assert table.raft.kraft_version == 1 and table.raft.kraft_version_at(end - 1) == 0
    catch_up(table, 2)
    assert table.raft.high_watermark == table.end.offset
    table.node.step(lambda raft: raft.upgrade_kraft_version(table.now, 1))
    with pytest.raises(KafkaError):
        table.node.step(lambda raft: raft.upgrade_kraft_version(table.now, 0))


def test_only_a_leader_upgrades() -> None:
    table = Table(1, 2, 3, static=True)
    with pytest.raises(KafkaError) as refused:
        table.node.step(lambda raft: raft.upgrade_kraft_version(table.now, 1))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_disk_is_no_voter() -> None:
    table = Table(1, 2, 3, start=False, election=ElectionState(3))
    table.node.disk.directory_id = directory(9)
    table.node.start()
    table.wait(10 * SETTINGS.election_timeout_ms)
    table.role(Unattached)
