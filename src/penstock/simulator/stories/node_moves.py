"""A client that moves the replicas of a node between its log directories during all other faults.

All promises to clients still hold (`node_story`). This client adds: a replica is in exactly one directory, and moving
to at most one other.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.simulator.client import Client

DIRECTORIES: Final = ("/var/penstock", "/mnt/disk-2", "/mnt/disk-3")
# A disk may be full, or a partition not open yet.
REFUSALS: Final = {
    ErrorCode.NONE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}
EVENTS: Final = ("replica moves asked for", "replica moves seen under way", "replica moves done")


class ReplicaMoves:
    def __init__(self, chance: random.Random, topics: Sequence[str], events: Counter[str]) -> None:
        self._chance = chance
        self._topics = topics
        self._events = events
        self._wanted: dict[str, str] = {}

    async def go_on(self, client: Client) -> None:
        """Request a move, after a while; and check the state."""
        await asyncio.sleep(self._chance.choice((0.01, 0.1, 0.5)) * self._chance.random())
        if self._chance.random() < 0.4:
            await self._ask(client)
        self._check(await client.ask(DescribeLogDirsRequest(topics=None)))

    async def _ask(self, client: Client) -> None:
        topic, directory = self._chance.choice(self._topics), self._chance.choice(DIRECTORIES)
        moved = AlterReplicaLogDirTopic(name=topic, partitions=[0])
        answer = await client.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=directory, topics=[moved])]))
        code = ErrorCode(answer.results[0].partitions[0].error_code)
        assert code in REFUSALS, f"OneDirectory: {topic} cannot be moved to {directory}: {code.name}"
        if code is ErrorCode.NONE:
            self._events["replica moves asked for"] += 1
            self._wanted[topic] = directory

    def _check(self, answer: Any) -> None:
        current: dict[str, str] = {}
        future: dict[str, str] = {}
        for result in answer.results:
            for topic in result.topics:
                places = [partition for partition in topic.partitions if partition.partition_index == 0]
                for partition in places:
                    found = future if partition.is_future_key else current
                    assert topic.name not in found, f"OneDirectory: {topic.name} is twice on this broker"
                    found[topic.name] = result.log_dir
        self._events["replica moves seen under way"] += len(future)
        for topic, directory in list(self._wanted.items()):
            if current.get(topic) == directory and topic not in future:
                self._events["replica moves done"] += 1
                del self._wanted[topic]
