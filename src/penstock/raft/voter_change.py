"""A change of the voters that is in progress; there is at most one.

No other change begins before it is committed, and none before the leader has committed a record of its own epoch. So
any majority of the old voters and any majority of the new ones have a node in common, and two leaders cannot commit
different things.
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
    # None after the answer was sent.
    token: Token | None
    ack_when_committed: bool = True
    # The offset of the VotersRecord; None until the new voter has reported its versions.
    offset: int | None = None
