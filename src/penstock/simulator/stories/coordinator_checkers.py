"""The laws of coordinators, which hold whatever happens to them; the checkers see all brokers at once.

- `SameLogSameState`: shards that have replayed the log up to the same committed offset are the same, on whatever
  broker, whether they grew or were loaded, and whatever compaction has left of the log.
- `CommittedOffsetsStay`: the offsets that the leader of a partition of `__consumer_offsets` has do not go back, unless
  a client commits an earlier one, which none here does.
- `AcknowledgedCommits`: and they are not behind what was acknowledged.
- `DecidedFirst`: no partition gets the marker of a transaction before the record that decides it is committed.
- `OneOwner`: no partition belongs to two members of a consumer group, assigned or not given up yet.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from penstock.broker.coordinators.hashing import partition_for
from penstock.broker.coordinators.partition import CoordinatorPartition
from penstock.broker.partitions.replica import Replica
from penstock.groups.offset_store import CommittedOffset
from penstock.groups.shard import GroupShard
from penstock.metadata.image import MetadataImage
from penstock.model.ids import TopicPartition
from penstock.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.stories.coordinator_clients import GROUP, TRANSACTION, Place
from penstock.simulator.story import Violation
from penstock.transactions.shard import TransactionShard

TOPICS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}
Offsets = Mapping[tuple[str, int], int]  # by group and partition


class CoordinatorWatch:
    def __init__(
        self, world: ClusterWorld, topic: str, acknowledged: Callable[[], Offsets], events: Counter[str]
    ) -> None:
        """`acknowledged`: what has been committed of `topic`; the offsets of these groups and partitions increase."""
        self._world = world
        self._topic = topic
        self._acknowledged = acknowledged
        self._events = events
        self._seen: dict[CoordinatorPartition[Any], tuple[Any, int, int, int]] = {}
        self._states: dict[tuple[TopicPartition, int], dict[object, str]] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._ends: dict[Replica, int] = {}
        self._image = MetadataImage()
        # For each shard: how many records it had replayed, by where the log ended then; and how many are committed.
        self._replayed: dict[TransactionShard, deque[tuple[int, int]]] = {}
        self._decided: dict[TransactionShard, int] = {}

    # -- responsible brokers ----------------------------------------------------------------------------------------

    def _newest(self) -> MetadataImage:
        """The newest image that any node has or had."""
        for machine in self._world.machines.values():
            if machine.is_ready and machine.image.offset > self._image.offset:
                self._image = machine.image
        return self._image

    def epoch_at(self, place: Place, name: str) -> int | None:
        if place.kind == GROUP or place.kind == TRANSACTION:
            topic_name = TOPICS[place.kind]
            image = self._newest()
            topic = image.topics.by_name(topic_name)
            index = 0 if topic is None else partition_for(place.key, len(topic.partitions))
        else:
            topic_name, index, image = self._topic, int(place.key), self._newest()
        partition = image.topics.partition(topic_name, index)
        return partition.leader_epoch if partition is not None and f"broker-{partition.leader}" == name else None

    # -- after every step -------------------------------------------------------------------------------------------

    def look(self) -> None:
        for machine in self._world.touched():
            if machine.broker is None:
                continue
            coordinators = machine.broker.coordinators
            for group_partition in coordinators.groups.partitions.values():
                self._look_at(machine, group_partition)
            for partition in coordinators.transactions.partitions.values():
                self._look_at(machine, partition)
            for replica in machine.replicas:
                self._look_at_log(replica)

    def _look_at_log(self, replica: Replica) -> None:
        end = replica.log.log_end_offset
        before = self._ends.get(replica, 0)
        if end != before:
            self._ends[replica] = end
            self._events["truncations"] += end < before

    def _look_at(self, machine: Machine, partition: CoordinatorPartition[Any]) -> None:
        shard = partition.shard
        state = (shard, _replayed(shard), partition.end_offset, partition.replica.high_watermark)
        before = self._seen.get(partition)
        if before == state:
            return
        self._seen[partition] = state
        self._count(machine, partition, before)
        if shard is None:
            return
        is_committed = partition.end_offset <= partition.replica.high_watermark
        if is_committed:
            self._compare(machine, partition)
        if isinstance(shard, TransactionShard):
            self._check_markers(partition, shard)
        else:
            _check_owners(shard)
            if is_committed and self._leads(machine, partition):
                self._check_offsets(machine, partition, shard)

    def _count(
        self, machine: Machine, partition: CoordinatorPartition[Any], before: tuple[Any, int, int, int] | None
    ) -> None:
        where = partition.replica.topic_partition
        if before is None:
            former = self._leaders.get(where)
            self._events["coordinators moved"] += former not in (None, machine.name)
            self._leaders[where] = machine.name
        elif before[0] not in (None, partition.shard):
            self._events["shards dropped"] += 1

    def _leads(self, machine: Machine, partition: CoordinatorPartition[Any]) -> bool:
        found = self._newest().topics.partition(*partition.replica.topic_partition)
        return found is not None and (found.leader, found.leader_epoch) == (machine.node_id, partition.leader_epoch)

    # -- the laws ---------------------------------------------------------------------------------------------------

    def _compare(self, machine: Machine, partition: CoordinatorPartition[Any]) -> None:
        where = partition.replica.topic_partition
        state = durable_state(partition.shard)
        known = self._states.setdefault((where, partition.end_offset), state)
        if known != state:
            raise Violation(
                "SameLogSameState",
                f"{where.topic}-{where.partition} at {partition.end_offset}: {machine.name} has "
                f"{_difference(state, known)}, others had {_difference(known, state)}",
            )

    def _check_markers(self, partition: CoordinatorPartition[Any], shard: TransactionShard) -> None:
        replayed = self._replayed.setdefault(shard, deque())
        replayed.append((partition.end_offset, shard.position))
        while replayed and replayed[0][0] <= partition.replica.high_watermark:
            self._decided[shard] = replayed.popleft()[1]
        for transactional_id, ending in shard.outbox.endings.items():
            if ending.attempts and ending.position > self._decided.get(shard, 0):
                raise Violation(
                    "DecidedFirst", f"{transactional_id}: {ending.transaction.status.label} is sent to the partitions"
                )

    def _check_offsets(self, machine: Machine, partition: CoordinatorPartition[Any], shard: GroupShard) -> None:
        for key, acknowledged in self._acknowledged().items():
            group_id, index = key
            if partition_for(group_id, self._partition_count) != partition.index:
                continue
            found = shard.state.offsets.get(group_id, self._topic, index)
            offset = -1 if found is None else found.offset
            if offset < self._offsets.get(key, -1):
                raise Violation(
                    "CommittedOffsetsStay", f"{key} at {machine.name} went from {self._offsets[key]} to {offset}"
                )
            if offset < acknowledged:
                raise Violation("AcknowledgedCommits", f"{key} is at {offset}, acknowledged was {acknowledged}")
            self._offsets[key] = offset

    @property
    def _partition_count(self) -> int:
        topic = self._newest().topics.by_name(CONSUMER_OFFSETS)
        assert topic is not None
        return len(topic.partitions)


def durable_state(shard: Any) -> dict[object, str]:
    """The state from records, comparable, whatever the order of the records."""
    if isinstance(shard, TransactionShard):
        return {
            each.transactional_id: repr((*each[:5], sorted(each.partitions), *each[6:])) for each in shard.transactions
        }
    written, consumer, shares, streams, (by_group, pending, _) = shard.state.durable()
    state: dict[object, str] = {("classic", group_id): repr(value) for group_id, value in written.items()}
    for kind, modern in (("consumer", consumer), ("share", shares), ("streams", streams)):
        for group_id, group in modern.items():
            for name, value in group.items():
                state[kind, group_id, name] = repr(sorted(value.items()) if isinstance(value, dict) else value)
    for group_id, topics in by_group.items():
        for topic, partitions in topics.items():
            for index, offset in partitions.items():
                state["offset", group_id, topic, index] = _offset_text(offset)
    for producer_id, groups in pending.items():
        for group_id, offsets in groups.items():
            for where, offset in offsets.items():
                state["pending", producer_id, group_id, where] = _offset_text(offset)
    return state


def _replayed(shard: Any) -> int:
    """The number of replayed records, as far as it can be counted cheaply."""
    if shard is None:
        return 0
    replayed: int = shard.position if isinstance(shard, TransactionShard) else shard.state.offsets.sequence
    return replayed


def _offset_text(offset: CommittedOffset) -> str:
    """Without the number of records before it, which a compaction changes."""
    return repr(offset._replace(sequence=0))


def _difference(one: Mapping[object, str], other: Mapping[object, str]) -> dict[object, str]:
    return {key: text for key, text in one.items() if other.get(key) != text}


def _check_owners(shard: GroupShard) -> None:
    for group in shard.state.consumer.values():
        owners: dict[object, str] = {}
        for member in group.members.values():
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    for index in partitions:
                        if owners.setdefault((topic_id, index), member.member_id) != member.member_id:
                            both = f"{owners[topic_id, index]} and {member.member_id}"
                            raise Violation("OneOwner", f"{group.group_id}: {index} is with {both}")
