"""An index of partitions for the controller: by in-sync broker, and by what is wrong with them.

A dead broker must not cost a scan of all partitions of the cluster. The index belongs to an image and follows it: by a
delta, at the cost of the changed partitions, or from one image to any other, at the cost of the number of topics
(images share what they have in common, so most of it is skipped quickly).

The index is not durable, and decides nothing. All tables keep the order in which partitions were added, so that an
iteration gives the same result for the same records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from penstock.metadata.delta import MetadataDelta
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.metadata.topics import TopicsImage
from penstock.model.ids import Uuid

# A topic's id and the partition's number in the topic.
PartitionKey = tuple[Uuid, int]

_NONE: Mapping[PartitionKey, None] = {}
_NO_PARTITIONS: Mapping[int, Partition] = {}


class PartitionIndex:
    def __init__(self) -> None:
        self._in_sync: dict[int, dict[PartitionKey, None]] = {}
        self._eligible: dict[int, dict[PartitionKey, None]] = {}
        self._leads: dict[int, int] = {}
        # Partitions without a leader; those whose leader is not their first replica, including the leaderless; those in
        # reassignment.
        self.leaderless: dict[PartitionKey, None] = {}
        self.not_preferred: dict[PartitionKey, None] = {}
        self.reassigning: dict[PartitionKey, None] = {}

    @classmethod
    def of(cls, topics: TopicsImage) -> PartitionIndex:
        """Build the index from scratch. A controller may need this when it takes over, so it is fast."""
        index = cls()
        in_sync: defaultdict[int, dict[PartitionKey, None]] = defaultdict(dict)
        leads: defaultdict[int, int] = defaultdict(int)
        for topic_id, topic in topics.ids.items():
            for partition_id, partition in topic.partitions.items():
                key = (topic_id, partition_id)
                replicas, _, isr, leader, _, _, _, removing, adding, elr, _ = partition
                for broker_id in isr:
                    in_sync[broker_id][key] = None
                if leader == replicas[0]:
                    leads[leader] += 1
                else:
                    index._led(key, partition)
                for broker_id in elr:
                    _insert(index._eligible, broker_id, key)
                if removing or adding:
                    index.reassigning[key] = None
        index._in_sync = dict(in_sync)
        for broker_id, count in leads.items():
            index._leads[broker_id] = index._leads.get(broker_id, 0) + count
        return index

    # -- queries -------------------------------------------------------------------------------------------------------

    def in_sync(self, broker_id: int) -> Collection[PartitionKey]:
        """The partitions in whose ISR this broker is."""
        return self._in_sync.get(broker_id, _NONE).keys()

    def eligible(self, broker_id: int) -> Collection[PartitionKey]:
        """The partitions this broker is an eligible leader replica of."""
        return self._eligible.get(broker_id, _NONE).keys()

    def leads(self, broker_id: int) -> int:
        return self._leads.get(broker_id, 0)

    @property
    def any_eligible(self) -> bool:
        """Whether any partition has eligible leader replicas in addition to its in-sync ones."""
        return bool(self._eligible)

    def with_eligible(self) -> Collection[PartitionKey]:
        return {key: None for keys in self._eligible.values() for key in keys}.keys()

    # -- changes -------------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, after: TopicsImage) -> None:
        """Move from the delta's image to the image that it produced."""
        for topic_id, topic in delta.removed_topics.items():
            for partition_id, partition in topic.partitions.items():
                self._remove((topic_id, partition_id), partition)
        for topic_id, partition_ids in delta.changed_partitions.items():
            before = delta.image.topics.by_id(topic_id)
            old = _NO_PARTITIONS if before is None else before.partitions
            new = after.ids[topic_id].partitions
            for partition_id in sorted(partition_ids):
                key = (topic_id, partition_id)
                if partition_id in old:
                    self._change(key, old[partition_id], new[partition_id])
                else:
                    self._add(key, new[partition_id])

    def move(self, before: TopicsImage, after: TopicsImage) -> None:
        """Move from one image to any other."""
        if before is after:
            return
        for key, partition in _only_in(before, after):
            self._remove(key, partition)
        for key, partition in _only_in(after, before):
            self._add(key, partition)

    def _add(self, key: PartitionKey, partition: Partition) -> None:
        for broker_id in partition.isr:
            _insert(self._in_sync, broker_id, key)
        for broker_id in partition.elr:
            _insert(self._eligible, broker_id, key)
        self._led(key, partition)
        if partition.reassigning:
            self.reassigning[key] = None

    def _remove(self, key: PartitionKey, partition: Partition) -> None:
        for broker_id in partition.isr:
            _delete(self._in_sync, broker_id, key)
        for broker_id in partition.elr:
            _delete(self._eligible, broker_id, key)
        self._not_led(key, partition)
        self.reassigning.pop(key, None)

    def _change(self, key: PartitionKey, old: Partition, new: Partition) -> None:
        """Same as removing and adding, but unchanged entries keep their position."""
        _replace(self._in_sync, key, old.isr, new.isr)
        _replace(self._eligible, key, old.elr, new.elr)
        if old.leader != new.leader or old.replicas[0] != new.replicas[0]:
            self._not_led(key, old)
            self._led(key, new)
        if new.reassigning:
            self.reassigning[key] = None
        else:
            self.reassigning.pop(key, None)

    def _led(self, key: PartitionKey, partition: Partition) -> None:
        leader = partition.leader
        if leader == NO_LEADER:
            self.leaderless[key] = None
        else:
            self._leads[leader] = self._leads.get(leader, 0) + 1
        if leader != partition.replicas[0]:
            self.not_preferred[key] = None

    def _not_led(self, key: PartitionKey, partition: Partition) -> None:
        leader = partition.leader
        if leader == NO_LEADER:
            self.leaderless.pop(key, None)
        elif self._leads[leader] == 1:
            del self._leads[leader]
        else:
            self._leads[leader] -= 1
        self.not_preferred.pop(key, None)


def _insert(table: dict[int, dict[PartitionKey, None]], broker_id: int, key: PartitionKey) -> None:
    keys = table.get(broker_id)
    if keys is None:
        keys = table[broker_id] = {}
    keys[key] = None


def _delete(table: dict[int, dict[PartitionKey, None]], broker_id: int, key: PartitionKey) -> None:
    keys = table[broker_id]
    del keys[key]
    if not keys:
        del table[broker_id]


def _replace(
    table: dict[int, dict[PartitionKey, None]], key: PartitionKey, old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    if old == new:
        return
    for broker_id in old:
        if broker_id not in new:
            _delete(table, broker_id, key)
    for broker_id in new:
        if broker_id not in old:
            _insert(table, broker_id, key)


def _only_in(one: TopicsImage, other: TopicsImage) -> Iterator[tuple[PartitionKey, Partition]]:
    """The partitions that the other image does not have, or has in another state."""
    for topic_id, topic in one.ids.items():
        counterpart = other.ids.get(topic_id)
        if counterpart is topic:
            continue
        known = _NO_PARTITIONS if counterpart is None else counterpart.partitions
        for partition_id, partition in topic.partitions.items():
            if known.get(partition_id) is not partition:
                yield (topic_id, partition_id), partition
