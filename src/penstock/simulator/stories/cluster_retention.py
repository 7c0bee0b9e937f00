"""Checks that deleted records, by DeleteRecords or by retention, do not come back.

- `DeletedStays`: a replica that had deleted records when that was acknowledged, and was in sync or had stored the new
  beginning, never has them again, whatever happens to its broker, unless it loses its disk: so they do not come back
  with the next leader. (A replica that is just catching up learns the beginning from the leader again.)
- `LogStartStays`: the beginning of a replica's log does not go back while its broker runs.
- `OnlyCommittedGoes`: nothing at or above the high watermark is deleted.
- `RetentionKeeps`: nothing is deleted that no request names and that is within the retention limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.simulator.client import Lost
from penstock.simulator.stories.cluster_checkers import Law, Promises, Seen, State
from penstock.simulator.stories.cluster_clients import Clients
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.story import Violation


class Deletions(Law):
    """`retained`: how many bytes retention keeps, if it deletes anything."""

    def __init__(self, world: ClusterWorld, topic: str, events: Counter[str], retained: int | None) -> None:
        self._world = world
        self._topic = topic
        self._events = events
        self._retained = retained
        self._asked: Counter[int] = Counter()  # by partition: requests asked to delete below this
        self._gone: Counter[int] = Counter()  # by partition: the latest beginning of any replica's log
        self._deleted: dict[tuple[str, int], int] = {}  # by machine and partition: what is acknowledged

    def ask(self, promises: Promises, offset: int) -> None:
        self._asked[promises.index] = max(offset, self._asked[promises.index])

    def acknowledged(self, promises: Promises, low_watermark: int) -> None:
        """By the replicas that have deleted already. Others were down, and nothing waits for them."""
        self._events["deletions"] += 1
        replicas = {machine.name: machine.replicas.get(self._topic, promises.index) for machine in self._world.brokers}
        in_sync = {
            f"broker-{broker_id}"
            for replica in replicas.values()
            if replica is not None and replica.leader is not None
            for broker_id in replica.leader.isr
        }
        for name, replica in replicas.items():
            if replica is None or replica.log.log_start_offset < low_watermark:
                continue
            if name in in_sync or replica.log.durable_log_start >= low_watermark:
                key = (name, promises.index)
                self._deleted[key] = max(low_watermark, self._deleted.get(key, 0))

    def forget(self, machine: Machine) -> None:
        """It has lost its disk."""
        self._deleted = {key: offset for key, offset in self._deleted.items() if key[0] != machine.name}

    def beginning(self, promises: Promises) -> int:
        return self._gone[promises.index]

    def replica_changed(self, machine: Machine, promises: Promises, seen: Seen, before: State) -> None:
        state, log = seen.state, seen.replica.log
        where = f"partition {promises.index}: the log of {machine.name}"
        if state.log_start < before.log_start and state.log_end > state.log_start:
            raise Violation("LogStartStays", f"{where} began at {before.log_start}, and now at {state.log_start}")
        if state.log_start < self._deleted.get((machine.name, promises.index), 0) and state.log_end > state.log_start:
            deleted = self._deleted[machine.name, promises.index]
            raise Violation("DeletedStays", f"{where} begins at {state.log_start}, deleted was up to {deleted}")
        if state.log_start > state.high_watermark:
            raise Violation(
                "OnlyCommittedGoes", f"{where} begins at {state.log_start}, committed is {state.high_watermark}"
            )
        if log.may_lack_beginning:
            return  # a power loss may have taken its first file; it asks the leader before it counts
        if state.log_start > max(self._asked[promises.index], self._gone[promises.index]):
            if self._retained is None or seen.content.size < self._retained:
                raise Violation(
                    "RetentionKeeps", f"{where} begins at {state.log_start}, and {seen.content.size} bytes are left"
                )
            self._events["deleted by retention"] += 1
        self._gone[promises.index] = max(state.log_start, self._gone[promises.index])
        assert log.log_start_offset == state.log_start


class Deleter:
    """An operator who deletes the oldest records from time to time."""

    def __init__(self, clients: Clients, promises: Promises, deletions: Deletions) -> None:
        self._clients = clients
        self._promises = promises
        self._deletions = deletions

    async def run(self) -> None:
        clients = self._clients
        while not clients.over:
            await asyncio.sleep(2.0 * clients.chance.random())
            if self._promises.told:
                try:
                    await self._delete(clients.chance.choice((max(self._promises.told), min(self._promises.told))))
                except Lost:
                    clients.events["connections lost"] += 1

    async def _delete(self, last: int) -> None:
        """Some more records than were deleted before, or all that are known to be committed."""
        clients = self._clients
        offset = min(max(last, self._deletions.beginning(self._promises) + 3), max(self._promises.told)) + 1
        found = await clients.find_leader(self._promises)
        if found is None:
            return
        partition = DeleteRecordsPartition(partition_index=self._promises.index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=clients.topic, partitions=[partition])], timeout_ms=3000
        )
        self._deletions.ask(self._promises, offset)
        async with clients.world.client(found.name, patience=4.0) as client:
            ((answer,),) = (each.partitions for each in (await client.ask(request)).topics)
        if answer.error_code == ErrorCode.NONE:
            self._deletions.acknowledged(self._promises, max(offset, answer.low_watermark))
        else:
            clients.events["deletions refused"] += 1
