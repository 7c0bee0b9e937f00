"""A member of a consumer group (KIP-848), as two records describe it: its subscription and its current assignment.

The current assignment: the partitions assigned to it, those it must give up and has not given up yet (`revoking`), and
the member epoch it has reached. Each partition carries the epoch in which the member got it. Values are immutable: use
`_replace` to make a changed member.
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

# Special epochs of a request: the member joins; leaves; leaves temporarily and will return under its instance id.
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2

# Partitions by topic, with the epoch in which each was assigned.
Owned: TypeAlias = Mapping[Uuid, Mapping[int, int]]
# Partitions by topic.
Target: TypeAlias = Mapping[Uuid, frozenset[int]]


class MemberState(IntEnum):
    """The state of a member, numbered as in the records."""

    STABLE = 0
    # The member must give up partitions before it can move to the next epoch.
    UNREVOKED_PARTITIONS = 1
    # The member is in the target's epoch, but others have not yet given up some partitions of its target.
    UNRELEASED_PARTITIONS = 2
    # Written by a newer version.
    UNKNOWN = 127


class ClassicFacet(NamedTuple):
    """The extra fields of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class ConsumerMember(NamedTuple):
    member_id: str
    # -- subscription
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    # None or empty: no expression.
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    # None for a member that uses the consumer protocol.
    classic: ClassicFacet | None = None
    # -- current assignment
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = {}
    revoking: Owned = {}

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    # -- records -------------------------------------------------------------------------------------------------------

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
    """Convert owned partitions. An older coordinator wrote no epochs: the member's own epoch is the safe guess."""
    owned = {}
    for part in parts:
        epochs = part.assignment_epochs
        if epochs is None or len(epochs) != len(part.partitions):
            epochs = [epoch] * len(part.partitions)
        owned[part.topic_id] = dict(zip(part.partitions, epochs, strict=True))
    return owned
