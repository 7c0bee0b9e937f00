"""UpdateRaftVoter (API key 82). A voter of the metadata quorum updates its endpoints and its range of kraft.version."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import KRaftVersionFeature, Listener
from penstock.protocol.primitives import Int16, Int32, Uuid


class UpdateRaftVoterRequest(Message, key=82, versions="0", flexible="0+"):
    cluster_id: str | None = field("0+", nullable="0+")
    current_leader_epoch: Int32 = field("0+")
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")
    listeners: list[Listener] = field("0+")
    kraft_version_feature: KRaftVersionFeature = field("0+")


class UpdateRaftVoterResponse(Message, key=82, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    current_leader: CurrentLeader | None = field("0+", tag=0)


class CurrentLeader(Message):
    leader_id: Int32 = field("0+", default=-1)
    leader_epoch: Int32 = field("0+", default=-1)
    host: str = field("0+")
    port: Int32 = field("0+")
