"""Clients of the coordinators of a simulated cluster: groups that commit offsets, and producers of transactions.

They know the protocol and no library: each finds its coordinator, loses it, and repeats what was not answered.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
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
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.testing import requests
from penstock.testing.simulation.client import PRODUCE_VERSION, Client, Lost
from penstock.testing.simulation.cluster_world import ClusterWorld
from penstock.testing.simulation.story import Violation

GROUP, TRANSACTION = 0, 1
BY_NAME_VERSION = 9  # of OffsetCommit and OffsetFetch
TXN_OFFSET_COMMIT_VERSION = 5

_ELSEWHERE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.KAFKA_STORAGE_ERROR,
    )
)  # fmt: skip
# The producer has to begin anew: its transaction is, or will be, aborted.
_OVER = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)  # fmt: skip


class Over(Exception):
    """The transaction cannot go on."""


class CoordinatorClients:
    """What they have in common; `over` ends them once they have nothing unanswered."""

    def __init__(
        self, world: ClusterWorld, topic: str, chance: random.Random, events: Counter[str], now_ms: Callable[[], int]
    ) -> None:
        self.world = world
        self.topic = topic
        self.chance = chance
        self.events = events
        self.now_ms = now_ms
        self.over = False

    async def _some_broker(self, request: Any) -> Any:
        name = self.chance.choice([machine.name for machine in self.world.brokers])
        async with self.world.client(name, patience=3.0) as client:
            return await client.ask(request)

    async def coordinator_of(self, kind: int, key: str) -> str | None:
        answer = await self._some_broker(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
        (found,) = answer.coordinators
        return None if found.error_code else f"broker-{found.node_id}"

    async def leader_of(self, index: int) -> str | None:
        answer = await self._some_broker(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]))
        for found in answer.topics[0].partitions:
            if found.partition_index == index and found.leader_id >= 0:
                return f"broker-{found.leader_id}"
        return None

    async def until_answered(
        self, where: Callable[[], Any], ask: Callable[[Client], Any], *, patience_s: float = 300.0
    ) -> Any:
        """The answer of whoever is responsible, asked again for as long as it takes. `ask` gives (code, answer)."""
        deadline = self.world.loop.time() + patience_s
        last: object = "nobody is responsible"
        while self.world.loop.time() < deadline:
            try:
                name = await where()
                if name is not None:
                    async with self.world.client(name, patience=4.0) as client:
                        code, answer = await ask(client)
                    if code in _OVER:
                        raise Over(code.name)
                    if code is ErrorCode.NONE:
                        return answer
                    last = code.name
                    self.events["refused"] += 1
                    if code not in _ELSEWHERE:
                        raise Violation("Protocol", f"{code.name} is no answer to a client that did nothing wrong")
            except Lost:
                last = "lost"
                self.events["connections lost"] += 1
            await asyncio.sleep(0.1 * self.chance.random())
        raise Violation("Liveness", f"no answer within {patience_s} s: {last}")

    async def offset_of(self, group: str, index: int = 0) -> int:
        """What the group has committed, once no transaction can change it."""
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[index])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
        )

        async def ask(client: Client) -> tuple[ErrorCode, int]:
            (found,) = (await client.ask(request, BY_NAME_VERSION)).groups
            if found.error_code:
                return ErrorCode(found.error_code), -1
            ((partition,),) = (topic.partitions for topic in found.topics)
            return ErrorCode(partition.error_code), partition.committed_offset

        offset: int = await self.until_answered(lambda: self.coordinator_of(GROUP, group), ask)
        return offset


class Committer:
    """A group that commits one offset after the other."""

    def __init__(self, clients: CoordinatorClients, group: str) -> None:
        self._clients = clients
        self.group = group
        self.sent = -1
        self.acknowledged = -1

    async def run(self) -> None:
        clients = self._clients
        while not clients.over:
            self.sent += 1
            await clients.until_answered(lambda: clients.coordinator_of(GROUP, self.group), self._commit)
            self.acknowledged = self.sent
            clients.events["commits"] += 1
            await asyncio.sleep(clients.chance.choice((0.0, 0.1, 0.3)))

    async def _commit(self, client: Client) -> tuple[ErrorCode, None]:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=self.sent, committed_metadata="m")
        topic = OffsetCommitRequestTopic(name=self._clients.topic, partitions=[partition])
        request = OffsetCommitRequest(group_id=self.group, topics=[topic])
        ((answer,),) = (each.partitions for each in (await client.ask(request, BY_NAME_VERSION)).topics)
        return ErrorCode(answer.error_code), None

    async def check(self) -> None:
        """Committed offsets do not go back, and none comes from nowhere."""
        low = self.acknowledged
        found = await self._clients.offset_of(self.group)
        if not low <= found <= self.sent:
            raise Violation("CommittedOffsetsStay", f"{self.group}: {found}, not in {low} to {self.sent}")


class TransactionalWriter:
    """Each transaction writes its number to all partitions, and commits it as its group's offset."""

    def __init__(self, clients: CoordinatorClients, name: str, partitions: int) -> None:
        self._clients = clients
        self._name = name
        self._partitions = partitions
        self.group = f"{name}-group"
        self._producer = (-1, -1)
        self.outcomes: dict[int, bool | None] = {}  # None: nobody knows

    async def run(self) -> None:
        clients = self._clients
        number = -1
        while not clients.over:
            number += 1
            self.outcomes[number] = False
            try:
                if self._producer == (-1, -1):
                    await self._initialize()
                await self._write(number)
            except Over:
                clients.events["transactions given up"] += 1
                self._producer = (-1, -1)
            await asyncio.sleep(clients.chance.choice((0.0, 0.1, 0.3)))
        # Whatever is still open is aborted by this.
        await self._initialize()

    async def _initialize(self) -> None:
        async def ask(client: Client) -> tuple[ErrorCode, tuple[int, int]]:
            request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
            answer = await client.ask(request, 5)
            return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)

        self._producer = await self._at_coordinator(ask)

    async def _write(self, number: int) -> None:
        clients = self._clients
        for index in range(self._partitions):
            await clients.until_answered(partial(clients.leader_of, index), self._produce(number, index))
        if clients.chance.random() < 0.8:
            await clients.until_answered(
                lambda: clients.coordinator_of(GROUP, self.group), lambda client: self._send_offset(client, number)
            )
            commits = clients.chance.random() < 0.7
        else:
            commits = False
        if commits:
            self.outcomes[number] = None

        async def end(client: Client) -> tuple[ErrorCode, tuple[int, int]]:
            producer_id, epoch = self._producer
            request = EndTxnRequest(
                transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, committed=commits
            )
            answer = await client.ask(request, 5)
            return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)

        self._producer = await self._at_coordinator(end)
        self.outcomes[number] = commits
        clients.events["transactions committed" if commits else "transactions aborted"] += 1

    def _produce(self, number: int, index: int) -> Callable[[Client], Any]:
        async def ask(client: Client) -> tuple[ErrorCode, None]:
            producer_id, epoch = self._producer
            data = requests.batch(
                f"{self._name}:{number}",
                timestamp=self._clients.now_ms(),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                transactional=True,
            )
            request = requests.produce_request(self._clients.topic, data, partition=index, timeout_ms=3000)
            request.transactional_id = self._name
            answer = requests.only_partition(await client.ask(request, PRODUCE_VERSION))
            return ErrorCode(answer.error_code), None

        return ask

    async def _send_offset(self, client: Client, number: int) -> tuple[ErrorCode, None]:
        producer_id, epoch = self._producer
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self.group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._clients.topic, partitions=[partition])],
        )
        ((answer,),) = (each.partitions for each in (await client.ask(request, TXN_OFFSET_COMMIT_VERSION)).topics)
        return ErrorCode(answer.error_code), None

    async def _at_coordinator(self, ask: Callable[[Client], Any]) -> tuple[int, int]:
        found: tuple[int, int] = await self._clients.until_answered(
            lambda: self._clients.coordinator_of(TRANSACTION, self._name), ask
        )
        return found

    async def check(self, found: list[list[int]]) -> None:
        """`found`: the numbers of this writer that readers of committed data see, by partition."""
        for index, numbers in enumerate(found):
            if numbers != sorted(set(numbers)):
                raise Violation("ExactlyOnce", f"{self._name} in partition {index}: {numbers}")
        if any(set(numbers) != set(found[0]) for numbers in found):
            raise Violation("AllOrNothing", f"{self._name}: {found}")
        for number, outcome in self.outcomes.items():
            if outcome is not None and outcome != (number in found[0]):
                told = "committed" if outcome else "aborted"
                raise Violation("AllOrNothing", f"{self._name}: {number} was {told}, readers see {found[0]}")
        offset = await self._clients.offset_of(self.group)
        if offset != max(found[0], default=-1):
            raise Violation("OffsetsWithTransaction", f"{self.group} is at {offset}, readers see {found[0]}")
