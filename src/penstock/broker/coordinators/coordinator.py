"""All shards of one internal topic on this broker; routes each key to its shard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Generic

from penstock.broker.coordinators.hashing import partition_for
from penstock.broker.coordinators.partition import CoordinatorPartition, Producer
from penstock.broker.coordinators.serde import RecordFormat
from penstock.broker.coordinators.shard import BytesReplay, EndTransaction, Operation, Replay, ShardT, Waiting
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.wakeups import Wakeups
from penstock.broker.slices import Slices
from penstock.coordinator.decision import CoordinatorRecord, Decision
from penstock.io.clock import Clock
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.model.ownership import owned_by_loop

logger = logging.getLogger("penstock.coordinator")

# By then heartbeats have told every member that another broker is the coordinator.
RESIGNED_S: Final = 10.0


@owned_by_loop()
class Coordinator(Generic[ShardT]):
    def __init__(
        self,
        topic: str,
        records: RecordFormat,
        new_shard: Callable[[int, int], ShardT],
        replay: Replay[ShardT],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        metadata: Metadata,
        wakeups: Wakeups,
        partitions_default: int,
        commit_timeout_ms: int,
        load_buffer_size: int,
        is_sure: Callable[[], bool],
        no_change: CoordinatorRecord,
        codec: int = 0,
        end_transaction: EndTransaction[ShardT] | None = None,
        loads: Slices | None = None,
        bytes_replay: Callable[[ShardT], BytesReplay] | None = None,
    ) -> None:
        """`new_shard` makes an empty shard from the partition index and the leader epoch. `is_sure`: whether no
        controller can consider this broker dead. `no_change`: a record that changes nothing when it is replayed.
        `end_transaction` replays a transaction marker. `loads` is shared with other coordinators. `bytes_replay` is a
        fast path for loading records outside of transactions."""
        self.topic = topic
        self.loop = loop
        self.clock = clock
        self.records = records
        self.new_shard = new_shard
        self.replay = replay
        self.commit_timeout = commit_timeout_ms / 1000
        self.load_buffer_size = load_buffer_size
        self.is_sure = is_sure
        self.no_change = no_change
        self.codec = codec
        self.end_transaction = end_transaction
        self.loads = loads or Slices(loop)
        self.upkeep = Slices(loop)
        self.bytes_replay = bytes_replay
        self.partitions: dict[int, CoordinatorPartition[ShardT]] = {}
        self._metadata = metadata
        self._wakeups = wakeups
        self._partitions_default = partitions_default
        self._resigned: dict[int, float] = {}
        # Called with a partition: after its shard changed, when more is committed, and when its shard is dropped.
        self.on_changed: Callable[[CoordinatorPartition[ShardT]], None] | None = None
        self.on_committed: Callable[[CoordinatorPartition[ShardT]], None] | None = None
        self.on_dropped: Callable[[CoordinatorPartition[ShardT]], None] | None = None

    # -- routing ----------------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition that coordinates a group or a transactional id."""
        topic = self._metadata.image.topics.by_name(self.topic)
        return partition_for(key, self._partitions_default if topic is None else len(topic.partitions))

    def submit(
        self,
        key: str,
        operation: Operation[ShardT],
        waiting: Waiting,
        *,
        writes: bool = False,
        is_current: bool = False,
        producer: Producer | None = None,
    ) -> None:
        partition = self.partitions.get(self.partition_of(key))
        if partition is None:
            waiting.refuse(ErrorCode.NOT_COORDINATOR)
        else:
            partition.submit(operation, waiting, writes=writes, is_current=is_current, producer=producer)

    def has_just_resigned(self, key: str) -> bool:
        """Whether clients may still believe that this broker is the coordinator of `key`."""
        since = self._resigned.get(self.partition_of(key))
        return since is not None and self.loop.time() < since + RESIGNED_S

    def tell_all(self, operation: Callable[[ShardT, int], Decision]) -> None:
        """Run `operation` on every loaded shard, soon, one after the other."""
        for partition in self.partitions.values():
            self.upkeep.once(partial(self._tell, partition, operation))

    def _tell(self, partition: CoordinatorPartition[ShardT], operation: Callable[[ShardT, int], Decision]) -> None:
        if partition.shard is not None:
            partition.carry_out(operation(partition.shard, self.clock.now_ms()))

    # -- partitions come and go -------------------------------------------------------------------------------------

    def replica_changed(self, replica: Replica) -> None:
        """This broker started or stopped leading the replica, or something else about the replica changed."""
        index = replica.topic_partition.partition
        partition = self.partitions.get(index)
        leader = None if replica.is_offline else replica.leader
        if partition is not None:
            if leader is not None and partition.replica is replica and leader.leader_epoch == partition.leader_epoch:
                return
            logger.info("%s: no longer coordinated here", replica.topic_partition)
            del self.partitions[index]
            self._resigned[index] = self.loop.time()
            partition.resign()
        if leader is not None:
            self.partitions[index] = CoordinatorPartition(self, replica, leader)

    def close(self) -> None:
        partitions, self.partitions = self.partitions, {}
        for partition in partitions.values():
            partition.resign()

    # -- called by partitions ---------------------------------------------------------------------------------------

    def changed(self, partition: CoordinatorPartition[ShardT]) -> None:
        if self.on_changed is not None:
            self.on_changed(partition)

    def committed(self, partition: CoordinatorPartition[ShardT]) -> None:
        if self.on_committed is not None:
            self.on_committed(partition)

    def dropped(self, partition: CoordinatorPartition[ShardT]) -> None:
        if self.on_dropped is not None:
            self.on_dropped(partition)

    def wake_readers(self) -> None:
        """Wake fetches that wait: something was appended outside of a request."""
        self._wakeups.run()
