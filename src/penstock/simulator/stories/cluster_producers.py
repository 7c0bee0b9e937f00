"""A simulated producer without idempotence.

It sends one request at a time, for all partitions that a broker leads, and repeats it until each of them is
acknowledged.

- `AtLeastOnce`: what was acknowledged is in the log, once or more often, in the order of the first sends. What only the
  leader had to have (acks=1) may be lost, but not without another election.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.simulator import requests
from penstock.simulator.client import PRODUCE_VERSION, Client, Lost
from penstock.simulator.stories.cluster_checkers import Promises
from penstock.simulator.stories.cluster_clients import DAMAGED, RETRIABLE, Clients
from penstock.simulator.story import Violation

NAME = "plain"
LEADER_ONLY = 1
NO_OFFSET = -1


class PlainProducer:
    def __init__(self, clients: Clients, promises: Sequence[Promises], acks: int) -> None:
        self._clients = clients
        self._promises = promises
        self._acks = acks
        self._numbers: dict[int, int] = {}
        self._pending: dict[int, list[bytes]] = {}
        self._acknowledged: dict[int, dict[bytes, int]] = {}  # by partition: values, and the epoch at that time

    async def run(self) -> None:
        clients = self._clients
        while not clients.over or self._pending:
            try:
                name = clients.chance.choice([machine.name for machine in clients.world.brokers])
                async with clients.world.client(name, patience=4.0) as client:
                    while not clients.over or self._pending:
                        if not await self._send(client, name):
                            break
                        await asyncio.sleep(clients.chance.choice((0.0, 0.1, 0.3)))
            except Lost:
                clients.events["connections lost"] += 1
            await asyncio.sleep(0.05)

    async def _send(self, client: Client, name: str) -> bool:
        """A batch for each partition that this broker leads; returns whether it led one."""
        clients = self._clients
        leaders = await clients.leaders(client)
        led = [each for each in self._promises if each.index in leaders and leaders[each.index].name == name]
        if clients.over:
            led = [each for each in led if each.index in self._pending]
        if not led:
            return False
        data = [PartitionProduceData(index=each.index, records=self._batch(each)) for each in led]
        request = ProduceRequest(
            acks=self._acks, timeout_ms=3000, topic_data=[TopicProduceData(name=clients.topic, partition_data=data)]
        )
        clients.events["several partitions a request"] += len(led) > 1
        (topic,) = (await client.ask(request, PRODUCE_VERSION)).responses
        for answer in topic.partition_responses:
            (promises,) = [each for each in led if each.index == answer.index]
            code = ErrorCode(answer.error_code)
            if code is not ErrorCode.NONE:
                clients.events["refused"] += 1
                if code not in RETRIABLE | DAMAGED:
                    raise Violation("AtLeastOnce", f"partition {answer.index}: {code.name} to a producer")
                continue
            if answer.base_offset == NO_OFFSET:
                raise Violation("AtLeastOnce", f"partition {answer.index}: acknowledged without an offset")
            clients.check_answer(promises, answer)
            self._answered(promises, answer.base_offset, leaders[answer.index].epoch)
        return True

    def _batch(self, promises: Promises) -> bytearray:
        values = self._pending.get(promises.index)
        if values is None:
            first = self._numbers.get(promises.index, 0)
            numbers = range(first, first + self._clients.chance.randint(1, 3))
            values = [f"{NAME}:{number}:{'y' * 50}".encode() for number in numbers]
            self._numbers[promises.index] = numbers.stop
            self._pending[promises.index] = values
            promises.sent.update(values)
        else:
            self._clients.events["repeated"] += 1
        return requests.batch(*values, timestamp=self._clients.now_ms())

    def _answered(self, promises: Promises, base_offset: int, epoch: int) -> None:
        values = self._pending.pop(promises.index)
        self._clients.events["acknowledged without idempotence"] += len(values)
        if self._acks == LEADER_ONLY:
            self._acknowledged.setdefault(promises.index, {}).update(dict.fromkeys(values, epoch))
        else:
            for offset, value in enumerate(values, base_offset):
                promises.tell(offset, value)

    def check(self, promises: Promises, content: dict[int, bytes], epoch: int, log_start: int) -> None:
        """At the end; `epoch` is that of the leader."""
        first_found: dict[int, int] = {}
        for offset, value in content.items():
            producer, number, _ = value.split(b":", 2)
            if producer == NAME.encode():
                first_found.setdefault(int(number), offset)
        numbers = list(first_found)
        if self._acks != LEADER_ONLY and not log_start and numbers != sorted(numbers):
            raise Violation("AtLeastOnce", f"partition {promises.index}: in the order {numbers}")
        for value, acknowledged_in in self._acknowledged.get(promises.index, {}).items():
            if int(value.split(b":")[1]) not in first_found and not log_start:
                if acknowledged_in >= epoch:
                    raise Violation(
                        "AtLeastOnce", f"partition {promises.index}: {value[:20]!r} of epoch {epoch} is lost"
                    )
                self._clients.events["lost with acks=1"] += 1
