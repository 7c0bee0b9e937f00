from __future__ import annotations

import pytest

from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from penstock.raft.leadership import NotAlone, QuorumHistory, lead_alone
from penstock.raft.quorum_state import (
    ElectionState,
    MalformedQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

HOME = bytes(range(16))
LOCAL = ReplicaKey(1, HOME)
ALONE = VoterSet.of([Voter(LOCAL, (VoterEndpoint("CONTROLLER", "host", 9093),))])


def test_quorum_state_is_kafkas_json() -> None:
    state = ElectionState(5, leader_id=1, voted_id=1, voted_directory_id=HOME)
    assert encode_quorum_state(state, 1) == (
        b'{"leaderId":1,"leaderEpoch":5,"votedId":1,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
    )
    assert decode_quorum_state(encode_quorum_state(state, 1)) == state
    assert encode_quorum_state(ElectionState(5, -1, 2), 0, (1, 2)) == (
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":5,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert decode_quorum_state(encode_quorum_state(ElectionState(5, -1, 2), 0)) == ElectionState(5, -1, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":"5","votedId":1,"data_version":0}',
        b'{"leaderId":1,"leaderEpoch":5,"votedId":1,"votedDirectoryId":"?","data_version":1}',
        b"\xff\xfe",
    ],
)
def test_a_quorum_state_that_cannot_be_read_is_not_guessed(data: bytes) -> None:
    with pytest.raises(MalformedQuorumState):
        decode_quorum_state(data)


def test_voters_survive_their_record() -> None:
    voters = VoterSet.of([Voter(ReplicaKey(3, HOME)), *ALONE])
    assert voters.node_ids == (1, 3)
    assert VoterSet.from_record(voters.to_record()) == voters


def test_the_first_leader_puts_version_and_voters_into_the_log() -> None:
    leadership = lead_alone(LOCAL, ALONE, 1, QuorumHistory(None, 0, False))
    assert leadership.election == ElectionState(1, 1, 1, HOME)
    change, version, voters = leadership.records
    # The only version Kafka's readers of the log take.
    assert isinstance(change, LeaderChangeMessage) and change.leader_id == 1 and change.version == 0
    assert [voter.voter_id for voter in change.voters] == [1]
    assert isinstance(version, KRaftVersionRecord) and version.kraft_version == 1
    assert isinstance(voters, VotersRecord)


def test_every_start_is_an_epoch_above_all_that_was() -> None:
    history = QuorumHistory(ElectionState(4, 1), 7, True)
    leadership = lead_alone(LOCAL, ALONE, 1, history)
    assert leadership.election.epoch == 8
    assert [type(record) for record in leadership.records] == [LeaderChangeMessage]
    assert lead_alone(LOCAL, ALONE, 1, QuorumHistory(ElectionState(9), 7, True)).election.epoch == 10


def test_with_fixed_voters_directories_do_not_matter() -> None:
    leadership = lead_alone(LOCAL, VoterSet.of([Voter(ReplicaKey(1))]), 0, QuorumHistory(None, 0, False))
    (change,) = leadership.records
    assert isinstance(change, LeaderChangeMessage) and change.version == 0
    assert leadership.election.voted_directory_id == ZERO_UUID


def test_nobody_leads_alone_who_is_not_alone() -> None:
    history = QuorumHistory(None, 0, True)
    with pytest.raises(NotAlone, match=r"voters are \[1, 2\]"):
        lead_alone(LOCAL, VoterSet.of([*ALONE, Voter(ReplicaKey(2))]), 1, history)
    with pytest.raises(NotAlone, match="disk was replaced"):
        lead_alone(ReplicaKey(1, b"x" * 16), ALONE, 1, history)
