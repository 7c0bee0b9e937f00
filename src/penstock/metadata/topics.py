"""The topics of the cluster, by name and by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.metadata.partition import Partition
from penstock.model.ids import Uuid


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, Partition]


def collision_key(name: str) -> str | None:
    """A key for names that differ only in `.` and `_`: their metric names would clash. None if a name has neither."""
    return name.replace(".", "_") if "." in name or "_" in name else None


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """Immutable: `MetadataDelta` copies what it changes and shares the rest."""

    ids: Mapping[Uuid, Topic] = field(default_factory=dict)
    # Only ids, so that a change within a topic does not change this table.
    names: Mapping[str, Uuid] = field(default_factory=dict)
    # The topics whose names are equal once `.` is replaced by `_`.
    collisions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def by_name(self, name: str) -> Topic | None:
        topic_id = self.names.get(name)
        return None if topic_id is None else self.ids[topic_id]

    def by_id(self, topic_id: Uuid) -> Topic | None:
        return self.ids.get(topic_id)

    def name_of(self, topic_id: Uuid) -> str | None:
        topic = self.ids.get(topic_id)
        return None if topic is None else topic.name

    def id_of(self, name: str) -> Uuid | None:
        return self.names.get(name)

    def partition(self, name: str, partition_id: int) -> Partition | None:
        topic = self.by_name(name)
        return None if topic is None else topic.partitions.get(partition_id)

    def __iter__(self) -> Iterator[Topic]:
        """Iterate in the order of creation."""
        return iter(self.ids.values())

    def __len__(self) -> int:
        return len(self.ids)
