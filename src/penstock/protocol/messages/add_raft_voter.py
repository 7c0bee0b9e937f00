"""AddRaftVoter (API key 80). Add a voter to the metadata quorum."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import Listener
from penstock.protocol.primitives import Int16, Int32, Uuid


class AddRaftVoterRequest(Message, key=80, versions="0-1", flexible="0+"):
    cluster_id: str | None = field("0+", nullable="0+")
    timeout_ms: Int32 = field("0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")
    listeners: list[Listener] = field("0+")
    ack_when_committed: bool = field("1+", default=True)


class AddRaftVoterResponse(Message, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", ignorable=True)
