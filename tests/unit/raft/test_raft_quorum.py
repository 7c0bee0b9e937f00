from __future__ import annotations

import pytest

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
