"""One change of the voters at a time.

While a change is on its way to being committed no other begins, and none begins before the leader has committed
something of its own epoch. So any majority of the old voters and any of the new have a node in common, and no two
leaders can commit different things.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.raft.ready import Token
from penstock.raft.voters import Voter


class ChangeKind(Enum):
    ADD = "add"
    REMOVE = "remove"
    UPDATE = "update"


@dataclass(slots=True)
class VoterChange:
    kind: ChangeKind
    voter: Voter
    deadline: int
    # None once it was answered.
    token: Token | None
    ack_when_committed: bool = True
    # Of the VotersRecord; None while the new voter has not told its versions yet.
    offset: int | None = None
