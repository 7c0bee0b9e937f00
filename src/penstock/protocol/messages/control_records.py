"""The bodies of control records: those of the metadata quorum, and the marker that ends a transaction."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.quorum_structs import KRaftVersionFeature, Listener
from penstock.protocol.primitives import Int16, Int32, Int64, Uuid


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    voters: list[LeaderChangeMessageVoter] = field("0+")
    granting_voters: list[LeaderChangeMessageVoter] = field("0+")


class LeaderChangeMessageVoter(Message):
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("1+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")
    last_contained_log_timestamp: Int64 = field("0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")
    kraft_version: Int16 = field("0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")
    voters: list[VotersRecordVoter] = field("0+")


class VotersRecordVoter(Message):
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")
    endpoints: list[Listener] = field("0+")
    kraft_version_feature: KRaftVersionFeature = field("0+")


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: Int32 = field("0+")
