"""Clients of the coordinators of a simulated cluster: what they share, and those that are not group members.

They use the protocol and no client library: each finds its coordinator, loses it, and repeats unanswered requests.

`OffsetsAreCurrent`: no broker returns an offset that is older than the last one acknowledged when it was asked, even if
another one has replaced it as the coordinator and it does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.simulator.client import Client, Lost, Silence
from penstock.simulator.stories.cluster_world import ClusterWorld
from penstock.simulator.story import Violation

GROUP, TRANSACTION, PARTITION = 0, 1, 2
BY_NAME_VERSION: Final = 9  # the last version of OffsetCommit and OffsetFetch with topic names
NOTHING_COMMITTED: Final = -1
PATIENCE_S: Final = 4.0
# Longer than a broker that lives may leave any request unanswered.
ENDLESS_S: Final = 90.0
ENDLESS_RATE: Final = 0.1

ELSEWHERE: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NETWORK_EXCEPTION,
    )
)  # fmt: skip
# The producer must start again: its transaction is, or will be, aborted.
OVER: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)  # fmt: skip


class Over(Exception):
    """The transaction cannot continue."""


class Place(NamedTuple):
    """What is responsible: the coordinator of a group or a transactional id, or the leader of a partition."""

    kind: int
    key: str


class Answer(NamedTuple):
    """NETWORK_EXCEPTION: the result of the request is unknown. `is_current`: the broker that answered was responsible
    all the time; a broker that is cut off may also believe that of itself."""

    code: ErrorCode
    value: Any = None
    is_current: bool = False


Ask = Callable[[Client], Awaitable[tuple[ErrorCode, Any]]]


class CoordinatorClients:
    """What they share; `over` ends them when they have no unanswered request."""

    def __init__(
        self,
        world: ClusterWorld,
        topic: str,
        chance: random.Random,
        events: Counter[str],
        now_ms: Callable[[], int],
        epoch_at: Callable[[Place, str], int | None],
    ) -> None:
        """`epoch_at`: the epoch in which a broker is responsible now; None if it is not."""
        self.world = world
        self.topic = topic
        self.chance = chance
        self.events = events
        self.now_ms = now_ms
        self.over = False
        self._epoch_at = epoch_at
        self._known: dict[Place, str] = {}

    @property
    def time(self) -> float:
        return self.world.loop.time()

    async def rest(self) -> None:
        await asyncio.sleep(self.chance.choice((0.0, 0.1, 0.3)))

    # -- responsible brokers ----------------------------------------------------------------------------------------

    async def _find(self, place: Place) -> str | None:
        """The broker, as one of the brokers reports it."""
        name = self.chance.choice([machine.name for machine in self.world.brokers])
        async with self.world.client(name, patience=3.0) as client:
            if place.kind == PARTITION:
                answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]))
                for found in answer.topics[0].partitions:
                    if found.partition_index == int(place.key) and found.leader_id >= 0:
                        return f"broker-{found.leader_id}"
                return None
            request = FindCoordinatorRequest(key_type=place.kind, coordinator_keys=[place.key])
            (coordinator,) = (await client.ask(request)).coordinators
            return None if coordinator.error_code else f"broker-{coordinator.node_id}"

    def forget(self, place: Place) -> None:
        self._known.pop(place, None)

    # -- asking -----------------------------------------------------------------------------------------------------

    async def attempt(self, place: Place, ask: Ask, *, patience: float = PATIENCE_S) -> Answer:
        """One attempt."""
        try:
            name = self._known.get(place) or await self._find(place)
            if name is None:
                return Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._known[place] = name
            epoch = self._epoch_at(place, name)
            code, value = await self._ask(name, ask, patience)
        except Lost:
            self.events["connections lost"] += 1
            self.forget(place)
            return Answer(ErrorCode.NETWORK_EXCEPTION)
        if code in ELSEWHERE:
            self.events["refused"] += 1
            self.forget(place)
        return Answer(code, value, epoch is not None and epoch == self._epoch_at(place, name))

    async def _ask(self, name: str, ask: Ask, patience: float) -> tuple[ErrorCode, Any]:
        machine = self.world.machines[name]
        life = machine.starts
        async with self.world.client(name, patience=patience) as client:
            is_endless = self.chance.random() < ENDLESS_RATE
            if is_endless:
                client.patience = ENDLESS_S
            try:
                return await ask(client)
            except Silence:
                if is_endless and machine.runs and machine.starts == life:
                    raise Violation("EveryoneIsAnswered", f"{name} says nothing for {ENDLESS_S:g} s") from None
                raise

    async def until_answered(self, place: Place, ask: Ask, *, patience_s: float = 300.0) -> Any:
        """The answer of the responsible broker; asks again for as long as necessary."""
        deadline = self.time + patience_s
        while True:
            code, value, _ = await self.attempt(place, ask)
            if code is ErrorCode.NONE:
                return value
            if code in OVER:
                raise Over(code.name)
            if code not in ELSEWHERE:
                raise Violation("Protocol", f"{code.name} is no answer to a client that did nothing wrong")
            if self.time > deadline:
                raise Violation("EveryoneIsAnswered", f"{place}: no answer within {patience_s:g} s: {code.name}")
            await asyncio.sleep(0.3 * self.chance.random())

    # -- offsets ----------------------------------------------------------------------------------------------------

    def fetch_offset(self, group: str, index: int = 0, *, stable: bool = True) -> Ask:
        """`stable`: wait until no transaction can change it."""
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[index])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )

        async def ask(client: Client) -> tuple[ErrorCode, int]:
            (found,) = (await client.ask(request, BY_NAME_VERSION)).groups
            if found.error_code:
                return ErrorCode(found.error_code), NOTHING_COMMITTED
            ((partition,),) = (topic.partitions for topic in found.topics)
            return ErrorCode(partition.error_code), partition.committed_offset

        return ask

    async def offset_of(self, group: str, index: int = 0) -> int:
        offset: int = await self.until_answered(Place(GROUP, group), self.fetch_offset(group, index))
        return offset

    def commit_offset(self, group: str, offsets: dict[int, int], *, generation: int = -1, member: str = "") -> Ask:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
            for index, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=partitions)],
        )

        async def ask(client: Client) -> tuple[ErrorCode, None]:
            (topic,) = (await client.ask(request, BY_NAME_VERSION)).topics
            (code,) = {partition.error_code for partition in topic.partitions}
            return ErrorCode(code), None

        return ask


class Committer:
    """A group without members that commits one offset after the other, each with the coordinator that it finds then: a
    former coordinator gets no commit that it would wait for."""

    def __init__(self, clients: CoordinatorClients, group: str) -> None:
        self._clients = clients
        self.group = group
        self.sent = NOTHING_COMMITTED
        self.acknowledged = NOTHING_COMMITTED

    async def run(self) -> None:
        clients = self._clients
        while not clients.over:
            self.sent += 1
            clients.forget(Place(GROUP, self.group))
            await clients.until_answered(Place(GROUP, self.group), clients.commit_offset(self.group, {0: self.sent}))
            self.acknowledged = self.sent
            clients.events["commits"] += 1
            await clients.rest()

    async def check(self) -> None:
        low = self.acknowledged
        found = await self._clients.offset_of(self.group)
        if not low <= found <= self.sent:
            raise Violation("AcknowledgedCommits", f"{self.group}: {found}, not in {low} to {self.sent}")


class OffsetReader:
    """Asks any broker for the offset of the committer, also those that are coordinators no longer."""

    def __init__(self, clients: CoordinatorClients, committer: Committer, chance: random.Random) -> None:
        self._clients = clients
        self._committer = committer
        self._chance = chance

    async def run(self) -> None:
        clients = self._clients
        ask = clients.fetch_offset(self._committer.group, stable=False)
        while not clients.over:
            least = self._committer.acknowledged
            name = self._chance.choice([machine.name for machine in clients.world.brokers])
            with contextlib.suppress(Lost):
                async with clients.world.client(name, patience=PATIENCE_S) as client:
                    code, offset = await ask(client)
                if code is ErrorCode.NONE:
                    clients.events["offsets read"] += 1
                    if offset < least:
                        raise Violation("OffsetsAreCurrent", f"{name} says {offset}, {least} was acknowledged before")
            await asyncio.sleep(self._chance.uniform(0.1, 1.0))


class Deleter:
    """An administrator: groups commit, and are deleted, one after the other."""

    def __init__(self, clients: CoordinatorClients) -> None:
        self._clients = clients
        self.deleted: list[str] = []

    async def run(self) -> None:
        clients = self._clients
        number = 0
        while not clients.over:
            number += 1
            place = Place(GROUP, f"fleeting-{number}")
            await clients.until_answered(place, clients.commit_offset(place.key, {0: number, 1: number}))
            await clients.until_answered(place, self._delete(place.key))
            self.deleted.append(place.key)
            clients.events["groups deleted"] += 1
            await asyncio.sleep(clients.chance.choice((0.0, 1.0, 4.0)))

    def _delete(self, group: str) -> Ask:
        async def ask(client: Client) -> tuple[ErrorCode, None]:
            (result,) = (await client.ask(DeleteGroupsRequest(groups_names=[group]))).results
            code = ErrorCode(result.error_code)
            # An earlier answer may have been lost.
            return (ErrorCode.NONE if code is ErrorCode.GROUP_ID_NOT_FOUND else code), None

        return ask

    async def check(self) -> None:
        for group in self.deleted[-3:]:
            found = await self._clients.offset_of(group)
            if found != NOTHING_COMMITTED:
                raise Violation("DeletedStays", f"{group} is deleted, and at {found}")
