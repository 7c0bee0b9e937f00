"""What consumer, share and streams groups have in common. All their state comes from records, except a few marks.

Three epochs describe the progress of such a group. The group epoch grows whenever members, subscriptions or topics
change. The assignment epoch is the group epoch that the target assignment was computed for. The member epoch is that of
the assignment that the member has reached.

Only `replay` changes a group. A handler that needs the effect of its own records replays them on a `draft`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message

MemberT = TypeVar("MemberT")
TargetT = TypeVar("TargetT")


Replay: TypeAlias = Mapping[type[Message], Callable[[Any, Any, Any], None]]
"""How a record changes a group, by the type of its key: called with the group, the key and the value."""


class _GroupValue(Protocol):
    epoch: int
    metadata_hash: int


class _AssignmentValue(Protocol):
    assignment_epoch: int
    assignment_timestamp: int


class ModernGroup(Generic[MemberT, TargetT]):
    REPLAY: ClassVar[Replay]
    # Attributes that do not come from records.
    SOFT: Collection[str] = ("checked_version",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp = 0
        self.members: dict[str, MemberT] = {}
        self.target: dict[str, TargetT] = {}
        self.is_deleted = False
        # Soft: the version of the topics that the group was last compared with.
        self.checked_version = -2

    def copy(self) -> Self:
        other = type(self)(self.group_id)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, dict) else value)
        return other

    def replay(self, key: Message, value: Message | None) -> None:
        change = self.REPLAY.get(type(key))
        if change is not None:
            change(self, key, value)

    def replay_group(self, key: Message, value: _GroupValue | None) -> None:
        self.is_deleted = value is None
        self.epoch = 0 if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def replay_assignment(self, key: Message, value: _AssignmentValue | None) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_timestamp = 0 if value is None else value.assignment_timestamp

    def durable(self) -> object:
        """Return all state that comes from records, for comparison."""
        return {name: value for name, value in vars(self).items() if name not in self.SOFT}

    def member(self, member_id: str) -> MemberT:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_room(self, limit: int, kind: str, member_id: str) -> None:
        """Raise KafkaError if the group is full and the member is not in it."""
        if len(self.members) >= limit and member_id not in self.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {kind} group has reached its maximum capacity of {limit} members.",
            )

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Whether to compute a new assignment now.

        At intervals, so that members that join together are assigned together; immediately if there is no assignment
        yet. A timestamp in the future comes from a coordinator whose clock was ahead of this one, and is ignored: until
        then may be hours.
        """
        if self.assignment_timestamp == 0 or now_ms < self.assignment_timestamp:
            return True
        return now_ms >= self.assignment_timestamp + interval_ms


class _Named(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...


NamedT = TypeVar("NamedT", bound=_Named)


class StaticGroup(ModernGroup[NamedT, TargetT]):
    """A group with static members: an instance id is the name of one member, which may return under another id."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        # Derived from the members: member ids by instance id.
        self.static_members: dict[str, str] = {}

    def static_member(self, instance_id: str) -> NamedT | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def identified(self, member_id: str, instance_id: str | None) -> NamedT:
        """Return the member; raise KafkaError if another member id holds its name."""
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def check_room_for(self, limit: int, kind: str, member_id: str, instance_id: str | None) -> None:
        """As `check_room`; a static member that returns needs no room."""
        if instance_id is None or instance_id not in self.static_members:
            self.check_room(limit, kind, member_id)

    def _keep_name(self, before: NamedT | None, member: NamedT) -> None:
        if before is not None and before.instance_id not in (None, member.instance_id):
            self._release_name(before)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _release_name(self, member: NamedT) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]


def unreleased(member_id: str, instance_id: str, owner: str) -> KafkaError:
    """The error for a member that joins under a name that another member still uses."""
    return KafkaError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
        f"owned by {owner} member.",
    )
