"""The votes of one election, real or pre-vote."""

from __future__ import annotations

from penstock.raft.voters import ReplicaKey, Voter, VoterSet


class Ballot:
    def __init__(self, voters: VoterSet, local: ReplicaKey) -> None:
        """`local` votes for itself, if it is a voter."""
        self.voters = voters
        self._votes: dict[int, bool] = {local.node_id: True} if voters.is_voter(local) else {}

    def record(self, node_id: int, granted: bool) -> None:
        if node_id in self.voters.node_ids:
            self._votes[node_id] = granted

    def ask_again(self, node_id: int) -> None:
        """Reset the answer of a node: one that denied its vote may have changed its mind."""
        if self._votes.get(node_id) is False:
            del self._votes[node_id]

    @property
    def granting(self) -> tuple[int, ...]:
        return tuple(node_id for node_id in self.voters.node_ids if self._votes.get(node_id))

    @property
    def unanswered(self) -> tuple[Voter, ...]:
        return tuple(voter for voter in self.voters if voter.key.node_id not in self._votes)

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.granting) + len(self.unanswered) < self.voters.majority
