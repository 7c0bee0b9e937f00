from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.control_records import LeaderChangeMessage, VotersRecord
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    Fetch,
    FetchAnswer,
    LeaderHint,
    Vote,
    VoteAnswer,
)
from penstock.raft.quorum import QuorumBroken
from penstock.raft.quorum_state import ElectionState
from penstock.raft.ready import AppendControl
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from penstock.raft.voters import ReplicaKey
from penstock.simulator.quorum.node import CLUSTER_ID
from raft_world import SETTINGS, Table, begin_epoch, directory, endpoints, key, led_by, vote


@pytest.mark.parametrize("static", [True, False])
def test_an_only_voter_leads_as_soon_as_it_starts(static: bool) -> None:
    table = Table(1, static=static)
    assert table.role(Leader).epoch == 1
    first = table.steps[0]
    assert first.election == ElectionState(1, leader_id=1)
    (append,) = first.log
    assert isinstance(append, AppendControl) and append.base_offset == 0 and append.epoch == 1
    assert isinstance(append.records[0], LeaderChangeMessage)
    # The voters of the format become part of the log, once.
    assert any(isinstance(record, VotersRecord) for record in append.records) is not static
    assert table.raft.high_watermark == len(append.records)
    table.restart()
    assert table.role(Leader).epoch == 2
    assert isinstance(table.steps[-1], type(first)) and table.raft.high_watermark == len(append.records) + 1


def test_an_only_voter_that_crashed_as_candidate_leads_in_that_epoch() -> None:
    table = Table(1, election=ElectionState(4, voted_id=1, voted_directory_id=directory(1)))
    assert table.role(Leader).epoch == 4


def test_who_wants_to_lead_asks_first_and_persists_nothing() -> None:
    table = Table(1, 2, 3)
    assert table.role(Unattached).epoch == 0
    table.wait(SETTINGS.election_timeout_ms)
    table.role(Prospective)
    votes = table.take(Vote)
    assert [send.to.node_id for send in votes] == [2, 3]
    assert votes[0].request == vote(1, 0, pre_vote=True, meant_for=key(2))
    assert table.persisted is None or table.persisted.epoch == 0

    table.answer(votes[0], VoteAnswer(leader=LeaderHint(0), granted=True))
    assert table.role(Candidate).epoch == 1
    step = table.steps[-1]
    assert step.election == ElectionState(1, voted_id=1, voted_directory_id=directory(1))
    assert [send.request for send in step.sends] == [vote(1, 1, meant_for=key(2)), vote(1, 1, meant_for=key(3))]


def test_a_majority_makes_a_leader_and_it_says_so() -> None:
    table = Table(1, 2, 3, log=[(3, ["one"])])
    table.elect()
    leader = table.role(Leader)
    assert leader.epoch == 4 and leader.progress.epoch_start_offset == 1
    won = next(step for step in table.steps if step.leader is not None and step.leader.start_offset is not None)
    assert won.election == ElectionState(4, leader_id=1)
    assert won.leader == (1, 4, 1)
    (append,) = won.log
    assert isinstance(append, AppendControl)
    change = append.records[0]
    assert isinstance(change, LeaderChangeMessage)
    assert [voter.voter_id for voter in change.voters] == [1, 2, 3]
    assert [voter.voter_id for voter in change.granting_voters] == [1, 2]
    assert [send.to.node_id for send in table.take(BeginQuorumEpoch)] == [2, 3]


def test_one_vote_an_epoch_and_it_is_on_disk_before_the_answer() -> None:
    table = Table(1, 2, 3)
    assert table.ask(vote(2, 5)) == VoteAnswer(leader=LeaderHint(5), granted=True)
    assert table.steps[-1].election == ElectionState(5, voted_id=2, voted_directory_id=directory(2))
    assert table.ask(vote(3, 5)) == VoteAnswer(leader=LeaderHint(5), granted=False)
    assert table.ask(vote(2, 5)) == VoteAnswer(leader=LeaderHint(5), granted=True)
    table.restart(power=True)
    assert table.ask(vote(3, 5)) == VoteAnswer(leader=LeaderHint(5), granted=False)
    assert table.ask(vote(3, 6)) == VoteAnswer(leader=LeaderHint(6), granted=True)


def test_fixed_voters_remember_votes_by_node_id() -> None:
    table = Table(1, 2, 3, static=True)
    table.ask(vote(2, 5))
    assert table.persisted == ElectionState(5, voted_id=2, voted_directory_id=ZERO_UUID)
    table.restart()
    assert table.ask(vote(2, 5)) == VoteAnswer(leader=LeaderHint(5), granted=True)


@pytest.mark.parametrize(
    ("last", "granted"),
    [
        (OffsetAndEpoch(2, 3), True),
        (OffsetAndEpoch(1, 3), False),
        (OffsetAndEpoch(9, 2), False),
        (OffsetAndEpoch(1, 4), True),
    ],
)
@pytest.mark.parametrize("pre_vote", [True, False])
def test_only_a_log_as_long_as_our_own_is_voted_for(last: OffsetAndEpoch, granted: bool, pre_vote: bool) -> None:
    table = Table(1, 2, 3, log=[(2, ["one"]), (3, ["two"])])
    assert table.ask(vote(2, 5, last=last, pre_vote=pre_vote)) == VoteAnswer(leader=LeaderHint(5), granted=granted)


def test_a_pre_vote_binds_nobody() -> None:
    table = Table(1, 2, 3)
    assert table.ask(vote(2, 0, pre_vote=True)) == VoteAnswer(leader=LeaderHint(0), granted=True)
    assert table.ask(vote(3, 0, pre_vote=True)) == VoteAnswer(leader=LeaderHint(0), granted=True)
    assert table.steps[-1].election is None


def test_who_has_heard_the_leader_wants_no_other() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=1)
    # A leader that has not answered yet may be gone.
    assert table.ask(vote(3, 1, pre_vote=True)) == VoteAnswer(leader=led_by(2, 1), granted=True)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 1), high_watermark=0))
    assert table.ask(vote(3, 1, pre_vote=True)) == VoteAnswer(leader=led_by(2, 1), granted=False)
    assert table.ask(vote(3, 1)) == VoteAnswer(leader=led_by(2, 1), granted=False)


def test_a_lost_pre_vote_leads_back_to_the_leader() -> None:
    table = Table(1, 2, 3)
    table.follow(2, epoch=1)
    table.wait(SETTINGS.fetch_timeout_ms)
    table.role(Prospective)
    for send in table.take(Vote):
        table.answer(send, VoteAnswer(leader=led_by(2, 1), granted=False))
    assert table.role(Follower).leader_id == 2
    assert table.persisted == ElectionState(1, leader_id=2)


def test_a_pre_vote_nobody_answers_is_repeated() -> None:
    table = Table(1, 2, 3)
    table.wait(SETTINGS.election_timeout_ms)
    first = table.role(Prospective)
    table.wait(SETTINGS.election_timeout_ms)
    again = table.role(Prospective)
    assert again is not first and again.epoch == 0


def test_an_old_voter_knows_no_pre_vote() -> None:
    table = Table(1, 2, 3)
    table.wait(SETTINGS.election_timeout_ms)
    table.answer(table.take(Vote)[0], VoteAnswer(error=ErrorCode.UNSUPPORTED_VERSION))
    assert table.role(Candidate).epoch == 1


def test_a_candidate_that_loses_asks_again() -> None:
    table = Table(1, 2, 3)
    table.wait(SETTINGS.election_timeout_ms)
    table.answer(table.take(Vote)[0], VoteAnswer(leader=LeaderHint(0), granted=True))
    for send in table.take(Vote):
        table.answer(send, VoteAnswer(leader=LeaderHint(1), granted=False))
    table.role(Candidate)
    assert table.take(Vote) == []
    table.wait(SETTINGS.election_timeout_ms)
    assert table.role(Prospective).epoch == 1
    # It still has its own vote in this epoch.
    assert table.ask(vote(2, 1)) == VoteAnswer(leader=LeaderHint(1), granted=False)


def test_a_candidate_that_restarts_still_is_one() -> None:
    table = Table(1, 2, 3, election=ElectionState(3, voted_id=1, voted_directory_id=directory(1)))
    assert table.role(Candidate).epoch == 3
    assert {send.request for send in table.take(Vote)} == {vote(1, 3, meant_for=key(2)), vote(1, 3, meant_for=key(3))}


def test_a_leader_that_restarts_has_resigned() -> None:
    table = Table(1, 2, 3, election=ElectionState(3, leader_id=1))
    table.role(Resigned)
    assert table.raft.leading_epoch is None
    assert table.ask(vote(2, 3)) == VoteAnswer(leader=led_by(1, 3), granted=False)
    assert len(table.take(EndQuorumEpoch)) == 2
    table.wait(SETTINGS.election_timeout_ms)
    assert table.raft.epoch == 4 and table.persisted == ElectionState(4)


def test_a_log_that_is_ahead_of_quorum_state_counts() -> None:
    table = Table(1, 2, 3, election=ElectionState(3, voted_id=2), log=[(5, ["one"])])
    assert table.role(Unattached).epoch == 5 and table.persisted == ElectionState(5)


def test_a_restarted_follower_goes_back_to_its_leader() -> None:
    table = Table(1, 2, 3, election=ElectionState(3, leader_id=2, voted_id=2, voted_directory_id=directory(2)))
    assert table.role(Follower).leader_id == 2
    assert table.take_one(Fetch)[0].to.node_id == 2


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(2, 5, cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (vote(2, 3), ErrorCode.FENCED_LEADER_EPOCH),
        (vote(2, 5, meant_for=ReplicaKey(1, bytes(15) + b"x")), ErrorCode.INVALID_VOTER_KEY),
        (vote(2, 5, meant_for=key(3)), ErrorCode.INVALID_VOTER_KEY),
        (vote(2, 5, last=OffsetAndEpoch(1, 5)), ErrorCode.INVALID_REQUEST),
        (vote(2, 5, last=OffsetAndEpoch(1, 6), pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote(2, 5, last=OffsetAndEpoch(-1, 0)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_votes_that_are_not_counted(request_: Vote, error: ErrorCode) -> None:
    table = Table(1, 2, 3, election=ElectionState(4))
    answer = table.ask(request_)
    assert isinstance(answer, VoteAnswer) and answer.error is error and not answer.granted


def test_nobody_votes_for_another_with_its_own_id() -> None:
    table = Table(1, 2, 3)
    answer = table.ask(vote(1, 5))
    assert isinstance(answer, VoteAnswer) and not answer.granted
    assert table.persisted == ElectionState(5)


def test_a_new_epoch_ends_a_leader() -> None:
    table = Table(1, 2, 3)
    table.elect()
    assert table.fetch(3, 1, 0, wait=50) is not None
    parked = object()
    table.node.receive(
        parked, Fetch(cluster_id=None, replica=key(2), leader_epoch=1, offset=3, last_fetched_epoch=1, max_wait_ms=50)
    )
    table.ask(vote(3, 7, last=OffsetAndEpoch(9, 6)))
    assert table.role(Unattached).voted == key(3) and table.raft.leading_epoch is None
    answers = [answer for token, answer in table.given if token is parked]
    assert answers == [FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderHint(7))]


# -- beginning and ending epochs ---------------------------------------------------------------------------------------


def test_begin_quorum_epoch_makes_followers() -> None:
    table = Table(1, 2, 3)
    assert table.ask(begin_epoch(2, 4)) == BeginQuorumEpochAnswer(leader=led_by(2, 4))
    assert table.role(Follower).leader_id == 2 and table.persisted == ElectionState(4, leader_id=2)
    old = table.ask(begin_epoch(3, 3))
    assert old == BeginQuorumEpochAnswer(error=ErrorCode.FENCED_LEADER_EPOCH, leader=led_by(2, 4))
    other = table.ask(begin_epoch(2, 4, meant_for=key(3)))
    assert isinstance(other, BeginQuorumEpochAnswer) and other.error is ErrorCode.INVALID_VOTER_KEY
    with pytest.raises(QuorumBroken, match="led by 2, and by 3"):
        table.ask(begin_epoch(3, 4))


def test_voters_that_do_not_fetch_are_told_again() -> None:
    table = Table(1, 2, 3)
    table.elect()
    for send in table.take(BeginQuorumEpoch):
        table.answer(send, BeginQuorumEpochAnswer(leader=led_by(1, 1)))
    table.fetch(2, 3, 1)
    table.wait(SETTINGS.fetch_timeout_ms // 2)
    assert [send.to.node_id for send in table.take(BeginQuorumEpoch)] == [2, 3]
    table.fetch(2, 3, 1)
    table.wait(SETTINGS.fetch_timeout_ms // 2 - 1)
    table.fetch(2, 3, 1)
    table.wait(1)
    assert [send.to.node_id for send in table.take(BeginQuorumEpoch)] == [3]


def test_a_leader_nobody_fetches_from_resigns() -> None:
    table = Table(1, 2, 3)
    table.elect()
    limit = SETTINGS.fetch_timeout_ms * 3 // 2
    table.wait(limit - 1)
    table.fetch(2, 3, 1)
    table.wait(limit - 1)
    # An observer and the leader itself are no majority.
    table.fetch(7, 3, 1)
    table.role(Leader)
    table.wait(1)
    assert table.role(Resigned).preferred_successors == (key(2), key(3))
    assert table.steps[-1].leader == (-1, 1, None)


def test_the_most_caught_up_follows_a_leader_that_resigns() -> None:
    table = Table(1, 2, 3)
    table.elect()
    table.append()
    table.fetch(3, 4, 1)
    table.fetch(2, 3, 1)
    table.node.step(lambda raft: raft.resign(table.now, 1))
    sends = table.take(EndQuorumEpoch)
    assert [send.request for send in sends] == [
        EndQuorumEpoch(cluster_id=CLUSTER_ID, leader=led_by(1, 1), preferred_successors=(key(3), key(2)))
    ] * 2
    table.answer(sends[0], EndQuorumEpochAnswer(leader=led_by(1, 1)))
    table.node.failed(sends[1].request_id, is_dead=False)
    table.wait(SETTINGS.retry_backoff_ms)
    # Only the node that has not answered gets the request again.
    assert [send.to for send in table.take(EndQuorumEpoch)] == [sends[1].to]


@pytest.mark.parametrize(
    ("successors", "wait"),
    [((1, 3), 0), ((3, 1), 50), ((3, 4, 1), 50), ((3, 4, 5, 1), 48), ((3, 4, 5), 100), ((), 0)],
)
def test_successors_stand_one_after_the_other(successors: tuple[int, ...], wait: int) -> None:
    table = Table(1, 2, 3, 4, 5)
    table.answer(table.follow(2, epoch=4), FetchAnswer(leader=led_by(2, 4), high_watermark=0))
    ended = EndQuorumEpoch(
        cluster_id=CLUSTER_ID,
        leader=LeaderHint(4, 2),
        preferred_successors=tuple(key(node_id) for node_id in successors),
    )
    assert table.ask(ended) == EndQuorumEpochAnswer(leader=led_by(2, 4))
    if wait:
        table.wait(wait - 1)
        table.role(Follower)
        table.wait(1)
    table.role(Prospective)


def test_a_dead_leader_is_reason_to_ask_and_one_that_does_not_answer_is_not() -> None:
    table = Table(1, 2, 3)
    fetch = table.follow(2, epoch=4)
    table.node.failed(fetch.request_id, is_dead=False)
    table.role(Follower)
    # In the meantime another may know of a new leader.
    (elsewhere,) = table.take(Fetch)
    assert elsewhere.to.node_id != 2
    table.now += SETTINGS.retry_backoff_ms
    table.answer(elsewhere, FetchAnswer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=led_by(2, 4)))
    (again,) = table.take(Fetch)
    assert again.to == fetch.to
    table.node.failed(again.request_id, is_dead=True)
    table.role(Prospective)
    # The others still hear the leader.
    for send in table.take(Vote):
        table.answer(send, VoteAnswer(leader=led_by(2, 4), granted=False))
    table.role(Follower)


def test_who_finds_the_leader_gone_does_not_hold_others_up() -> None:
    table = Table(1, 2, 3)
    table.chance = SETTINGS.death_grace_ms - 1
    fetch = table.follow(2, epoch=4)
    table.answer(fetch, FetchAnswer(leader=led_by(2, 4), high_watermark=0))
    (fetch,) = table.take(Fetch)
    assert table.ask(vote(3, 4, pre_vote=True)) == VoteAnswer(leader=led_by(2, 4), granted=False)
    table.node.failed(fetch.request_id, is_dead=True)
    table.role(Follower)
    assert table.ask(vote(3, 4, pre_vote=True)) == VoteAnswer(leader=led_by(2, 4), granted=True)


def test_who_denied_a_pre_vote_is_asked_again_when_it_has_lost_the_leader_itself() -> None:
    table = Table(1, 2, 3, log=[(1, ["a"])])
    table.follow(2, epoch=1)
    table.wait(SETTINGS.fetch_timeout_ms)
    asked = {send.to.node_id: send for send in table.take(Vote)}
    table.answer(asked[3], VoteAnswer(leader=led_by(2, 1), granted=False))
    table.role(Prospective)
    # Its log is shorter, so that it cannot be the next leader: but this node can.
    assert table.ask(vote(3, 1, pre_vote=True)) == VoteAnswer(leader=led_by(2, 1), granted=False)
    (again,) = table.take(Vote)
    assert again.to == asked[3].to
    table.answer(again, VoteAnswer(leader=led_by(2, 1), granted=True))
    table.role(Candidate)


def test_of_two_that_want_to_lead_one_lets_the_other_go_first() -> None:
    table = Table(1, 2, 3, node_id=2)
    table.wait(SETTINGS.election_timeout_ms)
    (asked,) = [send for send in table.take(Vote) if send.to.node_id == 1]
    assert table.ask(vote(1, 0, pre_vote=True)) == VoteAnswer(leader=LeaderHint(0), granted=True)
    table.answer(asked, VoteAnswer(leader=LeaderHint(0), granted=True))
    table.role(Prospective)
    # It stands by now, and gets the vote.
    assert table.ask(vote(1, 1)) == VoteAnswer(leader=LeaderHint(1), granted=True)


@pytest.mark.parametrize(
    ("rival", "last", "yields"),
    [
        (1, OffsetAndEpoch(1, 1), True),
        (3, OffsetAndEpoch(1, 1), False),
        (3, OffsetAndEpoch(2, 1), True),
        (1, OffsetAndEpoch(0, 0), False),
    ],
)
def test_who_lets_whom_go_first_and_for_how_long(rival: int, last: OffsetAndEpoch, yields: bool) -> None:
    table = Table(1, 2, 3, node_id=2, log=[(1, ["a"])])
    table.wait(SETTINGS.election_timeout_ms)
    asked = {send.to.node_id: send for send in table.take(Vote)}
    table.ask(vote(rival, 1, pre_vote=True, last=last))
    table.answer(asked[rival], VoteAnswer(leader=LeaderHint(1), granted=True))
    table.role(Prospective if yields else Candidate)
    table.wait(SETTINGS.election_timeout_ms // 2 - 1)
    table.role(Prospective if yields else Candidate)
    table.wait(1)
    table.role(Candidate)


def test_a_node_that_shuts_down_waits_for_another_leader() -> None:
    table = Table(1, 2, 3)
    table.elect()
    table.node.step(lambda raft: raft.shutdown(table.now))
    table.role(Resigned)
    assert not table.raft.is_shutdown_complete
    table.wait(10 * SETTINGS.election_timeout_ms)
    table.role(Resigned)
    table.ask(begin_epoch(2, 2))
    assert table.raft.is_shutdown_complete


def test_who_does_not_lead_may_shut_down_at_once() -> None:
    table = Table(1, 2, 3)
    table.follow(2, epoch=1)
    table.node.step(lambda raft: raft.shutdown(table.now))
    assert table.raft.is_shutdown_complete
    alone = Table(1)
    alone.node.step(lambda raft: raft.shutdown(alone.now))
    assert alone.raft.is_shutdown_complete


def test_what_is_said_of_a_leader_with_our_id_is_only_an_epoch() -> None:
    """A new disk: the node that led under this id is no more."""
    table = Table(1, 2, 3)
    fetch = table.take(Fetch)[0]
    table.answer(fetch, FetchAnswer(error=ErrorCode.FENCED_LEADER_EPOCH, leader=LeaderHint(6, 1, endpoints(1))))
    assert table.role(Unattached).epoch == 6 and table.role(Unattached).leader_id == -1


def test_time_does_not_go_back() -> None:
    table = Table(1, 2, 3)
    table.now -= 500
    table.node.tick()
    table.now += 500
    table.wait(SETTINGS.election_timeout_ms)
    table.role(Prospective)
