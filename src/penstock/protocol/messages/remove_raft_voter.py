"""RemoveRaftVoter (API key 81). Remove a voter from the metadata quorum."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int16, Int32, Uuid


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+"):
    cluster_id: str | None = field("0+", nullable="0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", ignorable=True)
