"""The state of one partition of `__consumer_offsets`: durable state from records, and soft state derived since.

Durable, changed only by replaying records: the last record of each classic group (`written`), the consumer, share and
streams groups, the offsets. Soft: the live classic groups (`classic`), which are ahead of their records while they
rebalance, and the timers. While the log is being loaded there are no live groups; `begin` creates them.

A group that was never joined is classic too: it has offsets, no record and no members.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, TypeVar

from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.offset_store import OffsetStore
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.share_group import SHARE_KEYS, ShareGroup
from penstock.groups.streams_group import STREAMS_KEYS, StreamsGroup
from penstock.groups.timers import Timers
from penstock.groups.topics import NoTopics, TopicsView
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.declaration import Message
from penstock.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

# Tuples: most records by far are offsets, and a union of types would be created for each of them.
_OFFSET_KEYS = (OffsetCommitKey, LegacyOffsetCommitKey)
_OFFSET_VALUES = (OffsetCommitValue, LegacyOffsetCommitValue)

# The types of groups, as listed.
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

# A group that has offsets here. Share groups have theirs elsewhere.
OffsetGroup: TypeAlias = ClassicGroup | ConsumerGroup | StreamsGroup


class _Modern(Protocol):
    is_deleted: bool

    def replay(self, key: Message, value: Message | None) -> None: ...


ModernT = TypeVar("ModernT", bound=_Modern)


@owned_by_loop()
class GroupState:
    def __init__(
        self,
        settings: GroupCoordinatorSettings,
        settings_of: Callable[[str], GroupCoordinatorSettings],
        new_id: Callable[[], bytes],
    ) -> None:
        """`settings_of` returns the settings of a group with its own overrides; `new_id` makes 16 random bytes."""
        self.settings = settings
        self.settings_of = settings_of
        self.topics: TopicsView = NoTopics()
        self.written: dict[str, GroupMetadataValue] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.shares: dict[str, ShareGroup] = {}
        self.streams: dict[str, StreamsGroup] = {}
        self.offsets = OffsetStore()
        self.classic: dict[str, ClassicGroup] = {}
        self.timers = Timers()
        self._new_id = new_id
        self._is_loaded = False

    def new_member_id(self) -> str:
        return str(uuid.UUID(bytes=self._new_id()))

    # -- groups --------------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> OffsetGroup | None:
        """Return a group that has offsets here. Share groups are not found."""
        return self.consumer.get(group_id) or self.streams.get(group_id) or self.classic.get(group_id)

    def kind_of(self, group_id: str) -> str | None:
        """Return the type of a group; None if it does not exist."""
        kinds = ((CONSUMER, self.consumer), (STREAMS, self.streams), (SHARE, self.shares), (CLASSIC, self.classic))
        return next((kind for kind, groups in kinds if group_id in groups), None)

    def group_or_error(self, group_id: str) -> OffsetGroup:
        group = self.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def durable(self) -> object:
        """Return all state that comes from records, for comparison."""
        consumer = {group_id: group.durable() for group_id, group in self.consumer.items()}
        shares = {group_id: group.durable() for group_id, group in self.shares.items()}
        streams = {group_id: group.durable() for group_id, group in self.streams.items()}
        return self.written, consumer, shares, streams, self.offsets.durable()

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, producer_id: int, now_ms: int) -> None:
        if isinstance(key, _OFFSET_KEYS):
            assert value is None or isinstance(value, _OFFSET_VALUES)
            self.offsets.replay(key.group, key.topic, key.partition, value, producer_id)
            if self._is_loaded and value is not None and self.group(key.group) is None:
                self.classic[key.group] = ClassicGroup(key.group, now_ms)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic(key.group, value)
        elif isinstance(key, SHARE_KEYS):
            _replay(self.shares, ShareGroup, key.group_id, key, value)
        elif isinstance(key, STREAMS_KEYS):
            _replay(self.streams, StreamsGroup, key.group_id, key, value)
        elif (group_id := getattr(key, "group_id", None)) is not None:
            _replay(self.consumer, ConsumerGroup, group_id, key, value)
        # Else a newer version writes this kind of record.

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            self.written.pop(group_id, None)
            self.classic.pop(group_id, None)
        else:
            self.written[group_id] = value
            if self._is_loaded and group_id not in self.classic:
                self.classic[group_id] = ClassicGroup.from_value(group_id, value)

    def begin(self, now_ms: int) -> None:
        """Create the live groups after all records have been replayed."""
        self._is_loaded = True
        for group_id, value in self.written.items():
            self.classic[group_id] = ClassicGroup.from_value(group_id, value)
        for group_id in self.offsets.groups():
            if self.group(group_id) is None:
                self.classic[group_id] = ClassicGroup(group_id, now_ms)


def _replay(
    groups: dict[str, ModernT], new: Callable[[str], ModernT], group_id: str, key: Message, value: Message | None
) -> None:
    group = groups.get(group_id)
    if group is None:
        if value is None:
            return
        group = groups[group_id] = new(group_id)
    group.replay(key, value)
    if group.is_deleted:
        del groups[group_id]
