"""Consumers that read from the closest replica (KIP-392): the leader names it, and they return when it fails.

- `PreferredIsInSync`: a leader names only replicas that are in sync, as far as it knows. Others may lag for ever, and
  their readers with them.
- `NeverAboveHighWatermark`: a leader considered committed what a consumer sees anywhere, before that.
- `ReadersFindAll`: nothing is skipped, no reader is sent back, and in the end each one has everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.model.errors import ErrorCode
from penstock.simulator import requests
from penstock.simulator.client import FETCH_VERSION, Client, Lost
from penstock.simulator.stories.cluster_checkers import NOT_LEADING, Law, Promises, Seen, State
from penstock.simulator.stories.cluster_clients import DAMAGED, FINISH_S, RETRIABLE, Clients, LeaderFound
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.stories.replica_content import values_of
from penstock.simulator.story import Violation

InSync = list[tuple[float, frozenset[int]]]
"""The replicas in sync, with the moment from which on they were."""


class LeadersView(Law):
    """What leaders have known: the replicas in sync, and the committed records."""

    def __init__(self, world: ClusterWorld, topic: str, promises: list[Promises]) -> None:
        self._world = world
        self._topic = topic
        self._promises = promises
        self._in_sync: dict[tuple[str, int], InSync] = {}
        self._committed: dict[int, int] = {}

    def look(self) -> None:
        for machine in self._world.brokers:
            for promises in self._promises:
                self._note(machine, promises.index)

    def _note(self, machine: Machine, index: int) -> None:
        replica = machine.replicas.get(self._topic, index)
        if replica is not None and replica.leader is not None:
            known = self._in_sync.setdefault((machine.name, index), [])
            if not known or known[-1][1] is not replica.leader.isr:
                known.append((self._world.loop.time(), replica.leader.isr))

    def replica_changed(self, machine: Machine, promises: Promises, seen: Seen, before: State) -> None:
        if seen.state.leader_epoch != NOT_LEADING:
            self._committed[promises.index] = max(seen.state.high_watermark, self._committed.get(promises.index, 0))

    def committed(self, promises: Promises) -> int:
        return self._committed.get(promises.index, 0)

    def were_in_sync(self, name: str, promises: Promises, since: float) -> set[int]:
        """The replicas that this leader considered in sync at any moment since then."""
        known = self._in_sync.get((name, promises.index), [])
        last_before = max((number for number, (when, _) in enumerate(known) if when <= since), default=0)
        return {broker_id for _, isr in known[last_before:] for broker_id in isr}


class RackReader:
    def __init__(self, clients: Clients, promises: Promises, rack: str, view: LeadersView) -> None:
        self._clients = clients
        self._promises = promises
        self._rack = rack
        self._view = view
        self._position = 0
        self._preferred: str | None = None

    async def run(self) -> None:
        """Reads from the beginning to the end, and further; now and then another reader starts."""
        await self._read_while(lambda: not self._clients.over)

    async def finish(self, content: dict[int, bytes], end: int) -> None:
        deadline = self._clients.world.loop.time() + FINISH_S
        await self._read_while(lambda: self._position < end and self._clients.world.loop.time() < deadline)
        if self._position != end:
            raise Violation(
                "ReadersFindAll", f"partition {self._promises.index}: {self._position} of {end} after {FINISH_S} s"
            )

    async def _read_while(self, is_wanted: Callable[[], bool]) -> None:
        clients = self._clients
        while is_wanted():
            try:
                found = await clients.find_leader(self._promises)
                if found is not None:
                    name = found.name if self._preferred is None else self._preferred
                    async with clients.world.client(name, patience=4.0) as client:
                        while is_wanted() and await self._read(client, name, found):
                            pass
            except Lost:
                clients.events["connections lost"] += 1
                self._preferred = None
            await asyncio.sleep(0.1)

    async def _read(self, client: Client, name: str, leader: LeaderFound) -> bool:
        """Whether to continue with this broker."""
        clients, index = self._clients, self._promises.index
        is_leader = name == leader.name
        since = clients.world.loop.time()
        request = requests.fetch_request(
            clients.topic,
            self._position,
            partition=index,
            current_leader_epoch=leader.epoch,
            rack_id=self._rack,
            max_wait_ms=200,
            min_bytes=1,
            partition_max_bytes=20_000,
        )
        response = await client.ask(request, FETCH_VERSION)
        ((answer,),) = (each.partitions for each in response.responses)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._preferred = None
            return await self._out_of_range(client, is_leader)
        if code is not ErrorCode.NONE:
            if code not in RETRIABLE | DAMAGED:
                raise Violation("ReadersFindAll", f"partition {index}: {code.name} at {self._position} from {name}")
            self._preferred = None
            return False
        if answer.preferred_read_replica >= 0:
            self._sent_to(answer.preferred_read_replica, name, since)
            return False
        self._take(answer.records, answer.high_watermark, name, is_leader)
        if not is_leader and clients.chance.random() < 0.02:  # the Java client returns every five minutes
            self._preferred = None
            return False
        if self._position >= answer.high_watermark and clients.chance.random() < 0.02 and not clients.over:
            clients.events["readers begin"] += 1
            self._position = 0 if clients.beginning is None else clients.beginning(self._promises)
            self._preferred = None
            return False
        return True

    async def _out_of_range(self, client: Client, is_leader: bool) -> bool:
        """A follower's log may begin later than the leader's; the leader knows."""
        if not is_leader:
            self._clients.events["sent back to the leader"] += 1
            return False
        moved = await self._clients.begin_again(client, self._promises, self._position)
        if moved is not None:
            self._position = moved
        return moved is not None

    def _sent_to(self, broker_id: int, name: str, since: float) -> None:
        in_sync = self._view.were_in_sync(name, self._promises, since)
        if broker_id not in in_sync:
            raise Violation(
                "PreferredIsInSync",
                f"partition {self._promises.index}: {name} names {broker_id}, in sync were {sorted(in_sync)}",
            )
        self._clients.events["sent to followers"] += 1
        self._preferred = f"broker-{broker_id}"

    def _take(self, data: bytes, high_watermark: int, name: str, is_leader: bool) -> None:
        where = f"partition {self._promises.index}: {name}"
        for offset, value in values_of(data):
            if offset < self._position:
                continue
            if offset != self._position:
                raise Violation("ReadersFindAll", f"{where} skips {self._position}")
            if offset >= min(high_watermark, self._view.committed(self._promises)):
                raise Violation("NeverAboveHighWatermark", f"{where} gives {offset}, committed is {high_watermark}")
            self._promises.tell(offset, value)
            self._position = offset + 1
            self._clients.events["read"] += 1
            self._clients.events["read from followers"] += not is_leader
