"""The voters of the metadata quorum.

With kraft.version 0 they are fixed by `controller.quorum.voters`; with version 1 they are a record in the log, and a
voter is its node id together with its directory id, so that a node that lost its disk is not mistaken for the voter it
was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.model.ids import ZERO_UUID, Uuid
from penstock.protocol.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    LeaderChangeMessageVoter,
    VotersRecord,
    VotersRecordVoter,
)

# The versions of the quorum's own protocol this software speaks.
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
                        Endpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
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
        """Without directory ids: Kafka declares a version 1 that has them, but writes and reads only version 0."""
        return [LeaderChangeMessageVoter(voter_id=voter.key.node_id) for voter in self.voters]

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(voter.key.node_id for voter in self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)
