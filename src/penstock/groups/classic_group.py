"""A classic group in memory: its members, their votes for a protocol, and the state of its rebalance.

All of this is soft state. The log holds only the last completed generation of the group (`GroupMetadataValue`). A new
coordinator starts from that, with a stable or an empty group; members that were in the middle of a rebalance find out
and join again. `value()` returns the record of the group as it is; `from_value` makes the group of a record.

    Empty                a member joins              -> PreparingRebalance
    PreparingRebalance   all members have joined     -> CompletingRebalance, in the next generation
                         all members have left       -> Empty, in the next generation
    CompletingRebalance  the leader's SyncGroup      -> Stable
                         a member joins or leaves    -> PreparingRebalance
    Stable               a member joins or leaves    -> PreparingRebalance

A member's subscription is opaque, except that a consumer's subscription begins with the topics it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from penstock.coordinator.decision import Token
from penstock.groups.embedded import CONSUMER, read_topics
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.messages.group_records import GroupMetadataValue, MemberMetadata


class ClassicState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


# The states each state may follow.
PREDECESSORS: Final = {
    ClassicState.EMPTY: {ClassicState.PREPARING_REBALANCE},
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.EMPTY,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.STABLE,
    },
    ClassicState.COMPLETING_REBALANCE: {ClassicState.PREPARING_REBALANCE},
    ClassicState.STABLE: {ClassicState.COMPLETING_REBALANCE},
}


class Protocol(NamedTuple):
    """An assignor that a member supports, and the member's subscription for it."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    _: KW_ONLY
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    # In order of preference. A new coordinator knows only the protocol that was chosen.
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    # Its first JoinGroup has not been answered yet.
    is_new: bool = field(default=False, init=False)
    # The requests that wait for an answer to JoinGroup and to SyncGroup.
    join_token: Token | None = field(default=None, init=False)
    sync_token: Token | None = field(default=None, init=False)

    @property
    def waits(self) -> bool:
        """Whether the member waits for an answer; it need not send heartbeats while it does."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class ClassicGroup:
    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        # Whether the current rebalance began with an empty group, which waits for more members to join.
        self.is_first_rebalance = False
        self.state_timestamp = now_ms
        # None for a group that only stores offsets.
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        # Generations that are in the log but that no member has been in.
        self.skipped_generations = 0
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        # Member ids given to clients that have not yet joined with them.
        self.pending_joins: set[str] = set()
        # Members of this generation that have not sent SyncGroup yet.
        self.pending_syncs: set[str] = set()
        # Whether a member joined since the initial delay began; the delay is then extended.
        self.new_member_added = False
        self.remaining_delay_ms = 0
        # The topics its consumers read; None where that is unknown.
        self.subscribed_topics: frozenset[str] | None = None
        self._awaiting_joins = 0
        self._supporters: dict[str, int] = {}

    # -- record --------------------------------------------------------------------------------------------------------

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, value.current_state_timestamp)
        group.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.generation = value.generation
        group.leader = value.leader
        for entry in value.members:
            group.add(
                ClassicMember(
                    entry.member_id,
                    instance_id=entry.group_instance_id,
                    client_id=entry.client_id,
                    client_host=entry.client_host,
                    rebalance_timeout_ms=(
                        entry.session_timeout if entry.rebalance_timeout == -1 else entry.rebalance_timeout
                    ),
                    session_timeout_ms=entry.session_timeout,
                    protocols=(Protocol(value.protocol or "", entry.subscription),),
                    assignment=entry.assignment,
                ),
                value.protocol_type,
            )
        group.subscribed_topics = group.read_subscribed_topics()
        return group

    def value(self) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.state_timestamp,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    # -- states --------------------------------------------------------------------------------------------------------

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREDECESSORS[ClassicState.PREPARING_REBALANCE]

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in PREDECESSORS[state], (self.group_id, self.state, state)
        if state is ClassicState.PREPARING_REBALANCE:
            self.is_first_rebalance = self.state is ClassicState.EMPTY
        self.state = state
        self.state_timestamp = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Start the next generation: all members have joined; they vote, and wait for the leader's assignment."""
        self.generation += 1 + self.skipped_generations
        self.skipped_generations = 0
        self.protocol = self.elect_protocol() if self.members else None
        self.subscribed_topics = self.read_subscribed_topics()
        self.move_to(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms)
        self.pending_syncs.clear()

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- members -------------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member. Requests of it that wait must have been answered before."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert not member.waits
        self._count(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Rename a static member that came back: it keeps its place under a new id."""
        assert member.instance_id is not None
        assert not member.waits
        old_id = member.member_id
        # The order of members is part of the group: a leader assigns by it.
        self.members = {(member_id if known == old_id else known): entry for known, entry in self.members.items()}
        member.member_id = member_id
        self.static_members[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(member_id)

    def update(
        self, member: ClassicMember, protocols: tuple[Protocol, ...], rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise KafkaError for an unknown member, or for a static member that another one has replaced."""
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # -- waiting members -----------------------------------------------------------------------------------------------

    def await_join(self, member: ClassicMember, token: Token) -> None:
        assert member.join_token is None
        member.join_token = token
        self._awaiting_joins += 1

    def take_join_token(self, member: ClassicMember) -> Token | None:
        token, member.join_token = member.join_token, None
        if token is not None:
            self._awaiting_joins -= 1
        return token

    @property
    def awaiting_joins(self) -> int:
        return self._awaiting_joins

    @property
    def all_have_joined(self) -> bool:
        return len(self.members) == self._awaiting_joins and not self.pending_joins

    def elect_joined_leader(self) -> bool:
        """Replace a leader that has not joined in time with a member that has. False if there is none."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_token is None:
            joined = next((entry for entry in self.members.values() if entry.join_token is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    # -- protocols -----------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join this group."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supporters.get(name, 0) == len(self.members) for name in names)

    def elect_protocol(self) -> str:
        """Elect a protocol: each member votes for the first of its protocols that all support; the most votes win."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            for protocol in member.protocols:
                if self._supporters[protocol.name] == len(self.members):
                    votes[protocol.name] = votes.get(protocol.name, 0) + 1
                    break
        return max(votes, key=lambda name: votes[name])

    def _count(self, member: ClassicMember, change: int) -> None:
        for protocol in member.protocols:
            self._supporters[protocol.name] = self._supporters.get(protocol.name, 0) + change

    # -- subscriptions -------------------------------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic.

        Consumers whose subscriptions cannot be read may be subscribed to anything.
        """
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def read_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        try:
            return frozenset(
                topic for member in self.members.values() for topic in read_topics(member.metadata(self.protocol))
            )
        except MalformedMessage:
            return None

    def assignments(self) -> Mapping[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}

    def waiting(self) -> Iterator[ClassicMember]:
        return (member for member in self.members.values() if member.waits)
