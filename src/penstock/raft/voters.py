"""The voters of the metadata quorum.

With kraft.version 0 `controller.quorum.voters` fixes them. With version 1 they are a record in the log, and a voter is
identified by node id and directory id, so that a node that lost its disk is not mistaken for its former self.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.model.ids import ZERO_UUID, Uuid
from penstock.protocol.messages.control_records import LeaderChangeMessageVoter, VotersRecord, VotersRecordVoter
from penstock.protocol.messages.quorum_structs import KRaftVersionFeature, Listener

# The supported versions of the quorum's own protocol.
KRAFT_VERSIONS: Final = (0, 1)


class ReplicaKey(NamedTuple):
    node_id: int
    directory_id: Uuid = ZERO_UUID


class VoterEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (KRAFT_VERSIONS[0], KRAFT_VERSIONS[-1])

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this voter is `key`. A voter of a fixed quorum has no directory id: there only the node id counts."""
        return self.key.node_id == key.node_id and self.key.directory_id in (ZERO_UUID, key.directory_id)

    def supports(self, kraft_version: int) -> bool:
        return self.kraft_versions[0] <= kraft_version <= self.kraft_versions[1]


@dataclass(frozen=True, slots=True)
class VoterSet:
    voters: tuple[Voter, ...]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls(tuple(sorted(voters, key=lambda voter: voter.key)))

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.of(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
                (
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            voters=[
                VotersRecordVoter(
                    voter_id=voter.key.node_id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        Listener(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
                        for endpoint in voter.endpoints
                    ],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0], max_supported_version=voter.kraft_versions[1]
                    ),
                )
                for voter in self.voters
            ]
        )

    def leader_change_voters(self) -> list[LeaderChangeMessageVoter]:
        """The voters without directory ids: Kafka declares version 1, which has them, but writes and reads only version
        0."""
        return [LeaderChangeMessageVoter(voter_id=voter.key.node_id) for voter in self.voters]

    def get(self, node_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def is_voter(self, key: ReplicaKey) -> bool:
        return any(voter.is_voter(key) for voter in self.voters)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.voters[0].is_voter(key)

    def endpoints(self, node_id: int) -> tuple[VoterEndpoint, ...]:
        """The endpoints of a voter; empty for a node that does not vote."""
        voter = self.get(node_id)
        return () if voter is None else voter.endpoints

    def with_voter(self, voter: Voter) -> VoterSet:
        """Add a voter, or replace the one with its node id."""
        return VoterSet.of([*(other for other in self.voters if other.key.node_id != voter.key.node_id), voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.key.node_id != node_id))

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(voter.key.node_id for voter in self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)


NO_VOTERS: Final = VoterSet(())
