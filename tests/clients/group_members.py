"""Members of consumer groups, one unmodified client library each, behind the few verbs that the tests of groups need.

A member reads what it is given, commits what it has read when told to, and leaves. All are polled in turns by the test,
as a program's main loop would.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
from drivers import DEADLINE_S

T = TypeVar("T")

SESSION_MS = 6000
HEARTBEAT_MS = 300


class Read(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Member(Protocol):
    def poll(self) -> list[Read]:
        """What has come within a moment."""
        ...

    def commit(self) -> None:
        """Everything that `poll` has returned; raises if that is refused."""
        ...

    def assignment(self) -> set[int]: ...

    def leave(self) -> None: ...


class Confluent:
    protocol = "classic"

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        conf: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        if self.protocol == "classic":
            conf |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        self._consumer = confluent_kafka.Consumer(conf | settings)
        self._consumer.subscribe([topic])

    def poll(self) -> list[Read]:
        messages = self._consumer.consume(100, 0.05)
        return [Read(each.partition(), each.offset(), each.value()) for each in messages if each.error() is None]

    def commit(self) -> None:
        try:
            for each in self._consumer.commit(asynchronous=False):
                assert each.error is None, each.error
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
                raise

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def leave(self) -> None:
        self._consumer.close()


class ConfluentConsumerProtocol(Confluent):
    protocol = "consumer"


class ConfluentCooperative(Confluent):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(bootstrap, group, topic, **{"partition.assignment.strategy": "cooperative-sticky"})


class KafkaPython:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,  # it may join before it knows how many partitions there are, and assign none
        )

    def poll(self) -> list[Read]:
        found = self._consumer.poll(timeout_ms=50)
        return [Read(each.partition, each.offset, each.value) for records in found.values() for each in records]

    def commit(self) -> None:
        self._consumer.commit()

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def leave(self) -> None:
        self._consumer.close()


class AioKafka:
    """On an event loop of its own, in a thread: heartbeats go on while the test looks elsewhere."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = self._call(self._start(bootstrap, group, topic))

    async def _start(self, bootstrap: str, group: str, topic: str) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        # Returns when the group has let it in, for which others may have to be polled: so nobody waits for it here.
        self._starting = asyncio.ensure_future(consumer.start())
        return consumer

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def poll(self) -> list[Read]:
        return self._call(self._poll())

    async def _poll(self) -> list[Read]:
        if not self._starting.done():
            await asyncio.wait([self._starting], timeout=0.05)
            return []
        self._starting.result()
        found = await self._consumer.getmany(timeout_ms=50)
        return [Read(each.partition, each.offset, each.value) for records in found.values() for each in records]

    def commit(self) -> None:
        self._call(self._consumer.commit())

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def leave(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _stop(self) -> None:
        await asyncio.wait([self._starting])
        await self._consumer.stop()


NewMember = Callable[[str, str, str], Member]

KINDS: dict[str, NewMember] = {
    "confluent": Confluent,
    "confluent-cooperative": ConfluentCooperative,
    "confluent-consumer-protocol": ConfluentConsumerProtocol,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
