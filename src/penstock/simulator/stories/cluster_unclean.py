"""Unclean elections with records: a leader may lack promised records, and its log becomes the valid one.

Exactly this may be lost: promises that the new leader's log does not keep, at the moment it begins to lead. Everything
that it has stays promised, and so does whatever is promised from then on. A leader of the earlier history that does not
know yet may continue for a while: what it still promises is lost, too, unless the new leader has it.

- `Durability` takes that into account; without an unclean election nothing may be lost, here as elsewhere.
- `ToldOfTruncation`: a reader that knows the epoch of what it has read (KIP-320) learns where the log diverges from
  what it has read. So what it keeps is what the log has in the end.
- `ExactlyOnce` holds for a run of a producer: from one producer id to the next, which a producer requests when the log
  has lost what it sent before. What is left of a run has no gap and no duplicate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from penstock.controller.elections import RECOVERING
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.record import iterate_records
from penstock.simulator import requests
from penstock.simulator.client import FETCH_VERSION, Client, Lost
from penstock.simulator.stories.cluster_checkers import NOT_LEADING, Law, Promises, Seen, State
from penstock.simulator.stories.cluster_clients import DAMAGED, FINISH_S, RETRIABLE, Clients
from penstock.simulator.stories.cluster_world import Machine
from penstock.simulator.stories.replica_content import Batch, ReplicaContent
from penstock.simulator.story import Violation

NEVER = -1
AWAY_S = (0.1, 0.1, 2.0, 20.0)
"""How long a reader that has lost its leader stays away. One that returns at once finds that the next leader's log ends
before its offset, and needs no epoch to notice. One that returns later finds other records there."""


class UncleanPromises(Promises):
    """The promises of a partition that any replica may come to lead."""

    def __init__(self, index: int, events: Counter[str]) -> None:
        super().__init__(index)
        self._events = events
        self._elected: int | None = None  # the epoch of an unclean election whose leader has not begun yet
        self._since = NEVER  # the epoch in which the valid history began
        self._kept: dict[int, bytes] = {}  # what its leader began with
        self._kept_batches: set[Batch] = set()
        self._found: dict[tuple[int, bytes], int] = {}  # every record of any log, and its latest epoch

    def note(self, epoch: int, offset: int, value: bytes) -> None:
        key = (offset, value)
        self._found[key] = max(epoch, self._found.get(key, epoch))

    def elected_uncleanly(self, epoch: int) -> None:
        self._events["unclean elections"] += 1
        if self._elected is None:
            self._elected = epoch

    def settle(self, epoch: int, content: ReplicaContent) -> None:
        if self._elected is None or epoch < self._elected:
            return
        self._elected, self._since = None, epoch
        self._kept = content.values()
        self._kept_batches = set(content.batches)
        kept = {offset: value for offset, value in self.told.items() if self._kept.get(offset) == value}
        self._events["promises given up"] += len(self.told) - len(kept)
        self.told = kept

    def is_given_up(self, batch: Batch) -> bool:
        return batch.epoch < self._since and batch not in self._kept_batches

    def tell(self, offset: int, value: bytes) -> None:
        epoch = self._found.get((offset, value))
        if epoch is None:
            raise Violation("Durability", f"partition {self.index}: {value!r} was never at {offset} of any log")
        if epoch < self._since and self._kept.get(offset) != value:
            self._events["promises given up"] += 1
        else:
            super().tell(offset, value)


class UncleanElections(Law):
    """Detects them: the record that names such a leader says that it must recover. The leader must begin with
    everything it has: no other replica may have that."""

    def partition_changed(self, promises: Promises, new: Partition, old: Partition) -> None:
        is_elected = new.leader >= 0 and new.leader != old.leader and new.leader not in (*old.isr, *old.elr)
        if is_elected and new.leader_recovery_state == RECOVERING:
            assert isinstance(promises, UncleanPromises)
            promises.elected_uncleanly(new.leader_epoch)

    def replica_changed(self, machine: Machine, promises: Promises, seen: Seen, before: State) -> None:
        begins = seen.state.leader_epoch != before.leader_epoch and seen.state.leader_epoch != NOT_LEADING
        if begins and seen.state.log_end < before.log_end:
            raise Violation(
                "Durability",
                f"partition {promises.index}: {machine.name} had {before.log_end} records, and leads with "
                f"{seen.state.log_end}",
            )


class Read(NamedTuple):
    offset: int
    value: bytes
    epoch: int


class EpochReader:
    """A consumer that knows the epoch of what it has read. It sends the epoch with each fetch, and the answer says
    where the logs diverge; or, like the Java client, it asks for that when it finds another leader, and is fenced until
    then."""

    def __init__(self, clients: Clients, promises: Promises) -> None:
        self._clients = clients
        self._promises = promises
        self._names_epoch = clients.chance.random() < 0.5
        self.history: list[Read] = []
        self._is_valid = False  # the leader has confirmed it

    @property
    def _position(self) -> int:
        return self.history[-1].offset + 1 if self.history else 0

    @property
    def _epoch(self) -> int:
        return self.history[-1].epoch if self.history else NEVER

    async def run(self) -> None:
        await self._read_while(lambda: not self._clients.over)

    async def finish(self, content: dict[int, bytes], end: int) -> None:
        """At the end, when the log no longer changes: read to its end. Then what was kept must equal the log."""
        deadline = self._clients.world.loop.time() + FINISH_S
        await self._read_while(
            lambda: (self._position, self._is_valid) != (end, True) and self._clients.world.loop.time() < deadline
        )
        for offset, value, epoch in self.history:
            if content.get(offset) != value:
                raise Violation(
                    "ToldOfTruncation",
                    f"partition {self._promises.index}: a reader has {value[:20]!r} of epoch {epoch} at {offset}, "
                    f"the log has {content.get(offset, b'')[:20]!r}",
                )
        if self._position != end:
            raise Violation(
                "ReadersFindAll", f"partition {self._promises.index}: {self._position} of {end} after {FINISH_S} s"
            )

    async def _read_while(self, is_wanted: Callable[[], bool]) -> None:
        clients = self._clients
        self._is_valid = False
        while is_wanted():
            try:
                found = await clients.find_leader(self._promises)
                if found is not None:
                    async with clients.world.client(found.name, patience=4.0) as client:
                        if self._names_epoch or await self._validate(client, found.epoch):
                            while is_wanted() and await self._read(client, found.epoch):
                                self._is_valid = True
            except Lost:
                clients.events["connections lost"] += 1
            await asyncio.sleep(0.1 if clients.over else clients.chance.choice(AWAY_S))

    async def _validate(self, client: Client, leader_epoch: int) -> bool:
        """Whether the leader has everything that was read, or what it lacks is forgotten."""
        if not self.history:
            return True
        wanted = OffsetForLeaderPartition(
            partition=self._promises.index, current_leader_epoch=leader_epoch, leader_epoch=self._epoch
        )
        topic = OffsetForLeaderTopic(topic=self._clients.topic, partitions=[wanted])
        response = await client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
        ((answer,),) = (each.partitions for each in response.topics)
        if answer.error_code:
            return False
        self._forget(answer.leader_epoch, answer.end_offset)
        return True

    def _forget(self, epoch: int, end_offset: int) -> None:
        """Forget what the leader lacks: later epochs, and offsets beyond the end of that epoch on the leader."""
        before = len(self.history)
        while self.history and (self._epoch > epoch or self._position > end_offset):
            del self.history[-1]
        self._clients.events["truncations told to readers"] += len(self.history) < before

    async def _read(self, client: Client, leader_epoch: int) -> bool:
        request = requests.fetch_request(
            self._clients.topic,
            self._position,
            partition=self._promises.index,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=self._epoch if self._names_epoch else NEVER,
            max_wait_ms=200,
            min_bytes=1,
            partition_max_bytes=20_000,
        )
        response = await client.ask(request, FETCH_VERSION)
        ((answer,),) = (each.partitions for each in response.responses)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self.history:
            self._forget(NEVER, 0)  # the leader has no epoch that this reader knows: start again
            return True
        if code is not ErrorCode.NONE:
            if code not in RETRIABLE | DAMAGED:
                raise Violation("Durability", f"partition {self._promises.index}: {code.name} at {self._position}")
            return False
        if answer.diverging_epoch is not None and answer.diverging_epoch.end_offset >= 0:
            self._forget(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
            return True
        self._take(answer.records)
        return True

    def _take(self, data: bytes) -> None:
        for position, header in iterate_headers(data):
            check_crc(data, position, header)
            for record in iterate_records(data, position, header, max_size=requests.MAX_RECORDS_SIZE):
                if record.offset >= self._position:
                    value = record.value or b""
                    self._promises.tell(record.offset, value)
                    self.history.append(Read(record.offset, value, header.leader_epoch))
                    self._clients.events["read"] += 1
