"""Becoming the leader of the quorum.

A leader's first batch in its epoch says so in the log itself (LeaderChange), and is what everything before it is
committed by: once that batch is on a majority of the disks, so is all that precedes it. With one voter the majority is
the voter, its vote is its own, and the only law left is the order: the election on disk, then the first batch, then
anything else.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from penstock.raft.quorum_state import ElectionState
from penstock.raft.voters import ReplicaKey, VoterSet


class NotAlone(ValueError):
    """The quorum has other voters than this node."""


class QuorumHistory(NamedTuple):
    """What disk and log tell a node about its quorum when it starts."""

    election: ElectionState | None
    # The epoch of the last batch in the log or, if that is empty, of the snapshot; 0 if there is neither.
    last_epoch: int
    # Whether the voters are in the log, and not only in the checkpoint the node was formatted with.
    voters_in_log: bool


class Leadership(NamedTuple):
    """What becoming leader takes, in this order: persist `election`, then append `records` as one control batch."""

    election: ElectionState
    records: list[LeaderChangeMessage | KRaftVersionRecord | VotersRecord]


def lead_alone(local: ReplicaKey, voters: VoterSet, kraft_version: int, history: QuorumHistory) -> Leadership:
    """How the only voter becomes leader. Every start is a new epoch, so that what a crash left half-done is past."""
    if voters.node_ids != (local.node_id,):
        raise NotAlone(f"node {local.node_id} is not the only voter: the voters are {list(voters.node_ids)}")
    if kraft_version >= 1 and voters.voters[0].key != local:
        raise NotAlone(f"the voter {local.node_id} is another directory than this node's: its disk was replaced")
    epoch = max(history.last_epoch, history.election.epoch if history.election else 0) + 1
    votes = voters.leader_change_voters()
    records: list[LeaderChangeMessage | KRaftVersionRecord | VotersRecord] = [
        LeaderChangeMessage(leader_id=local.node_id, voters=votes, granting_voters=votes)
    ]
    if kraft_version >= 1 and not history.voters_in_log:
        # The checkpoint of the format is this node's own; what the quorum relies on has to be in the log.
        records += [KRaftVersionRecord(kraft_version=kraft_version), voters.to_record()]
    election = ElectionState(
        epoch, local.node_id, local.node_id, local.directory_id if kraft_version >= 1 else ZERO_UUID
    )
    return Leadership(election, records)
