"""A copy of a group that replays records, so that each step of a decision sees the previous steps."""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.share_group import ShareGroup
from penstock.groups.streams_group import StreamsGroup
from penstock.protocol.declaration import Message


class _Replays(Protocol):
    def copy(self) -> Self: ...

    def replay(self, key: Message, value: Message | None) -> None: ...


GroupT = TypeVar("GroupT", bound=_Replays)


class _Draft(Generic[GroupT]):
    def __init__(self, group: GroupT) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []

    @classmethod
    def of(cls, group: GroupT) -> Self:
        return cls(group.copy())

    def emit(self, record: CoordinatorRecord) -> None:
        self.records.append(record)
        self.group.replay(record.key, record.value)


class Draft(_Draft[ConsumerGroup]):
    pass


class ShareDraft(_Draft[ShareGroup]):
    pass


class StreamsDraft(_Draft[StreamsGroup]):
    pass
