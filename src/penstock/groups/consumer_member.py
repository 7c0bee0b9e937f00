"""A member of a consumer group (KIP-848), as two records have it: what it wants, and what it has.

What it has: the partitions assigned to it, those it was told to give up and has not given up yet (`revoking`), and the
epoch up to which it has followed its group. Each partition carries the epoch in which the member got it. Values are
never changed in place: whoever wants another member makes one with `_replace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from penstock.groups.classic_group import Protocol
from penstock.model.ids import Uuid
from penstock.protocol.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

# Epochs that are not epochs: of a request, "I join", "I leave", "I leave and will be back under my name".
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2

# Partitions by topic, with the epoch since when they are assigned.
Owned: TypeAlias = Mapping[Uuid, Mapping[int, int]]
# Partitions by topic.
Target: TypeAlias = Mapping[Uuid, frozenset[int]]


class MemberState(IntEnum):
    """Numbered as in the records."""

    STABLE = 0
    # It must give up partitions before it moves on.
    UNREVOKED_PARTITIONS = 1
    # It has moved on, and partitions that are to be its own have not been given up by others yet.
    UNRELEASED_PARTITIONS = 2
    # Of a version to come.
    UNKNOWN = 127


class ClassicFacet(NamedTuple):
    """What a member needs that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class ConsumerMember(NamedTuple):
    member_id: str
    # -- what it wants
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    # None or empty: no expression.
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    # None for a member that speaks the consumer protocol.
    classic: ClassicFacet | None = None
    # -- what it has
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = {}
    revoking: Owned = {}

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    # -- as records ----------------------------------------------------------------------------------------------------

    def wishes(self) -> ConsumerGroupMemberMetadataValue:
        classic = None
        if self.classic is not None:
            classic = ClassicMemberMetadata(
                session_timeout_ms=self.classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                    for protocol in self.classic.protocols
                ],
            )
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.regex or None,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=classic,
        )

    def with_wishes(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        classic = None
        if value.classic_member_metadata is not None:
            classic = ClassicFacet(
                value.classic_member_metadata.session_timeout_ms,
                tuple(
                    Protocol(protocol.name, bytes(protocol.metadata))
                    for protocol in value.classic_member_metadata.supported_protocols
                ),
            )
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or None,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=classic,
        )

    def possessions(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_partitions(self.assigned),
            partitions_pending_revocation=_partitions(self.revoking),
        )

    def with_possessions(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        known = value.state in (0, 1, 2)
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_possessions(self) -> ConsumerMember:
        return self._replace(epoch=LEAVING, previous_epoch=LEAVING, state=MemberState.STABLE, assigned={}, revoking={})


def _partitions(owned: Owned) -> list[TopicPartitions]:
    parts = []
    for topic_id in sorted(owned):
        indexes = sorted(owned[topic_id])
        epochs = [owned[topic_id][index] for index in indexes]
        parts.append(TopicPartitions(topic_id=topic_id, partitions=indexes, assignment_epochs=epochs))
    return parts


def _owned(parts: Iterable[TopicPartitions], epoch: int) -> dict[Uuid, dict[int, int]]:
    """A coordinator of old wrote no epochs: the member's own is the safe guess."""
    owned = {}
    for part in parts:
        epochs = part.assignment_epochs
        if epochs is None or len(epochs) != len(part.partitions):
            epochs = [epoch] * len(part.partitions)
        owned[part.topic_id] = dict(zip(part.partitions, epochs, strict=True))
    return owned
