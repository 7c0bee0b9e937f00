"""The `quorum-state` file: the election state that a voter must not lose.

It is one line of JSON, as Kafka writes it. Version 0 belongs to a quorum of fixed voters (kraft.version 0), version 1
to one whose voters are in the log. It is written and synced before a node answers a vote and before a leader acts as
one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from penstock.model.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_text

QUORUM_STATE_FILE: Final = "quorum-state"
NOBODY: Final = -1


class MalformedQuorumState(ValueError):
    """A `quorum-state` that cannot be read. A guess could mean voting twice in an epoch, so the node does not guess."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The newest epoch this node knows, its leader, and this node's vote in it."""

    epoch: int
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: Uuid = ZERO_UUID


def encode_quorum_state(state: ElectionState, version: int, voter_ids: tuple[int, ...] = ()) -> bytes:
    """Encode the file; `voter_ids` are part of version 0 only."""
    fields: dict[str, object]
    if version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
        }
    elif version == 1:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_text(state.voted_directory_id),
        }
    else:
        raise ValueError(f"quorum-state has no version {version}")
    return json.dumps({**fields, "data_version": version}, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> ElectionState:
    try:
        fields = json.loads(data)
        version = fields["data_version"]
        if version not in (0, 1):
            raise MalformedQuorumState(f"quorum-state of version {version!r} is not known here")
        numbers = [fields[name] for name in ("leaderEpoch", "leaderId", "votedId")]
        if any(type(number) is not int for number in numbers):
            raise MalformedQuorumState(f"quorum-state holds no numbers where it should: {data!r}")
        directory = uuid_from_text(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
    except MalformedQuorumState:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedQuorumState(f"quorum-state cannot be read: {data[:200]!r}") from error
    epoch, leader_id, voted_id = numbers
    return ElectionState(epoch, leader_id, voted_id, directory)
