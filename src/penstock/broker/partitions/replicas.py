"""The replicas that this broker holds, by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.partitions.replica import Replica
from penstock.model.ids import Uuid
from penstock.model.ownership import owned_by_loop


@owned_by_loop()
class Replicas:
    __slots__ = ("_by_id", "_by_name", "_names")

    def __init__(self) -> None:
        self._by_name: dict[str, dict[int, Replica]] = {}
        self._by_id: dict[Uuid, dict[int, Replica]] = {}
        self._names: dict[Uuid, str] = {}

    def __iter__(self) -> Iterator[Replica]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def get(self, topic: str, partition: int) -> Replica | None:
        partitions = self._by_name.get(topic)
        return None if partitions is None else partitions.get(partition)

    def get_by_id(self, topic_id: Uuid, partition: int) -> Replica | None:
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def of_topic(self, topic: str) -> list[Replica]:
        return list(self._by_name.get(topic, {}).values())

    def add(self, replica: Replica) -> None:
        topic, partition = replica.topic_partition
        self._by_name.setdefault(topic, {})[partition] = replica
        self._by_id.setdefault(replica.topic_id, {})[partition] = replica
        self._names[replica.topic_id] = topic

    def remove(self, replica: Replica) -> None:
        topic, partition = replica.topic_partition
        by_name = self._by_name.get(topic, {})
        if by_name.get(partition) is replica:
            del by_name[partition]
        if not by_name:
            self._by_name.pop(topic, None)
        by_id = self._by_id.get(replica.topic_id, {})
        by_id.pop(partition, None)
        if not by_id:
            self._by_id.pop(replica.topic_id, None)
            self._names.pop(replica.topic_id, None)
