"""A draft: a consumer group as it will be once the records written so far are replayed."""

from __future__ import annotations

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups.consumer_group import ConsumerGroup


class Draft:
    """A copy of a group that replays records, so that each step of a decision sees the previous steps."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []

    @classmethod
    def of(cls, group: ConsumerGroup) -> Draft:
        return cls(group.copy())

    def emit(self, record: CoordinatorRecord) -> None:
        self.records.append(record)
        self.group.replay(record.key, record.value)
