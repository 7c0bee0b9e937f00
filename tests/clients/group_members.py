"""Members of consumer groups, one unmodified client library each, behind the few verbs that the tests of groups need.

A member reads what it is given, commits what it has read when told to, and leaves. All are polled in turns by the test,
as a program's main loop would. What it is given is noted with the generation (or member epoch) in which that happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from clients.drivers import DEADLINE_S
from clients.librdkafka import close
from clients.logins import of_python_clients
from narrowing import present

T = TypeVar("T")


class Timing(NamedTuple):
    session_ms: int = 6000
    heartbeat_ms: int = 300
    request_ms: int = 30_000
    """How long a broker that is silent is waited for."""
    metadata_ms: int = 1000


TIMING = Timing()
NO_LOGIN: Mapping[str, str] = MappingProxyType({})
"""Settings to log in with have librdkafka's names."""


class Read(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Given(NamedTuple):
    """All partitions that a member has from now on."""

    generation: int
    partitions: frozenset[int]


class Member(Protocol):
    @property
    def given(self) -> list[Given]: ...

    def poll(self) -> list[Read]:
        """What has come within a moment."""
        ...

    def commit(self) -> dict[int, int]:
        """Everything that `poll` has returned, and is still its own; raises if that is refused."""
        ...

    def assignment(self) -> set[int]: ...

    def leave(self) -> None: ...


class Refused(Exception):
    """A commit, by the group: the member is no longer in it, or not in this generation."""


class Confluent:
    protocol = "classic"
    strategy = "range,roundrobin"

    def __init__(
        self, bootstrap: str, group: str, topic: str, timing: Timing = TIMING, login: Mapping[str, str] = NO_LOGIN
    ) -> None:
        conf: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": self.protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "socket.timeout.ms": timing.request_ms,
            "topic.metadata.refresh.interval.ms": timing.metadata_ms,
            "log_level": 0,
            **login,
        }
        if self.protocol == "classic":
            conf |= {
                "session.timeout.ms": timing.session_ms,
                "heartbeat.interval.ms": timing.heartbeat_ms,
                "partition.assignment.strategy": self.strategy,
            }
        self.given: list[Given] = []
        self._consumer = confluent_kafka.Consumer(conf)
        self._consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, consumer: confluent_kafka.Consumer, added: list[confluent_kafka.TopicPartition]) -> None:
        everything = {each.partition for each in (*consumer.assignment(), *added)}
        self.given.append(Given(generation_of(consumer.consumer_group_metadata()), frozenset(everything)))

    def poll(self) -> list[Read]:
        messages = self._consumer.consume(100, 0.05)
        return [
            Read(present(each.partition()), present(each.offset()), present(each.value()))
            for each in messages
            if each.error() is None
        ]

    def commit(self) -> dict[int, int]:
        try:
            committed = self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._NO_OFFSET:
                return {}
            raise Refused(str(error)) from error
        for each in committed:
            if each.error is not None:
                raise Refused(str(each.error))
        return {each.partition: each.offset for each in committed if each.offset >= 0}

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def leave(self) -> None:
        close(self._consumer)


def generation_of(metadata: bytes) -> int:
    """What librdkafka hands to transactional producers: a magic word, the generation, ids."""
    assert metadata.startswith(b"CGMDv2:"), metadata
    return int.from_bytes(metadata[7:11], sys.byteorder, signed=True)


class ConfluentConsumerProtocol(Confluent):
    protocol = "consumer"


class ConfluentCooperative(Confluent):
    strategy = "cooperative-sticky"


class KafkaPython(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """On a thread of its own: it gives up joining when a poll ends, and begins again, so polls have to be long."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, timing: Timing = TIMING, login: Mapping[str, str] = NO_LOGIN
    ) -> None:
        self.given: list[Given] = []
        self._topic = topic
        self._read_up_to: dict[int, int] = {}
        self._thread = ThreadPoolExecutor(1)
        self._polling: Future[Any] | None = None
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=timing.session_ms,
            heartbeat_interval_ms=timing.heartbeat_ms,
            request_timeout_ms=timing.request_ms,
            metadata_max_age_ms=timing.metadata_ms,
            reconnect_backoff_max_ms=500,  # and not 30 s, as it has by default
            **of_python_clients(login),
        )
        self._learn_partitions()
        self._consumer.subscribe([topic], listener=self)

    def _learn_partitions(self) -> None:
        """Else it may join before it knows of any, and assign none. It gives up at once if a broker is away."""
        for _ in range(int(DEADLINE_S / 0.2)):
            try:
                self._consumer.partitions_for_topic(self._topic)
                return
            except kafka.errors.RetriableError:
                time.sleep(0.2)
        self._consumer.partitions_for_topic(self._topic)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._read_up_to.clear()

    def on_partitions_assigned(self, assigned: Any) -> None:
        generation = self._consumer.group_metadata().generation_id
        self.given.append(Given(generation, frozenset(each.partition for each in assigned)))

    def poll(self) -> list[Read]:
        if self._polling is None:
            self._polling = self._thread.submit(self._consumer.poll, timeout_ms=1000)
        if not wait([self._polling], timeout=0.05).done:
            return []
        polled, self._polling = self._polling, None
        try:
            found = polled.result()
        except kafka.errors.RetriableError:  # of no broker just now, for one
            return []
        read = [Read(each.partition, each.offset, each.value) for records in found.values() for each in records]
        self._read_up_to |= {each.partition: each.offset + 1 for each in read}
        return read

    def commit(self) -> dict[int, int]:
        return self._thread.submit(self._commit, dict(self._read_up_to)).result()

    def _commit(self, offsets: dict[int, int]) -> dict[int, int]:
        # A poll that ended just now may have lost some of them.
        offsets = {partition: offset for partition, offset in offsets.items() if partition in self._read_up_to}
        try:
            self._consumer.commit(
                {
                    kafka.TopicPartition(self._topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
                    for partition, offset in offsets.items()
                }
            )
        except kafka.errors.KafkaError as error:
            raise Refused(str(error)) from error
        return offsets

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def leave(self) -> None:
        self._thread.submit(self._consumer.close).result()
        self._thread.shutdown()
        del self._consumer
        self._polling = None
        with warnings.catch_warnings():  # it forgets to close sockets whose connection was refused
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


class AioKafka(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """On an event loop of its own, in a thread: heartbeats go on while the test looks elsewhere.

    With one assignor: it sends a JoinGroup for each, and with two of them every round of joining begins the next one,
    so that no group of several ever settles, on Apache Kafka neither. That one is `range`, the first choice of the
    others: a coordinator that takes over knows only the elected protocol of each member, so who cannot do that one is
    kept out, as on Apache Kafka.
    """

    def __init__(
        self, bootstrap: str, group: str, topic: str, timing: Timing = TIMING, login: Mapping[str, str] = NO_LOGIN
    ) -> None:
        self.given: list[Given] = []
        self._topic = topic
        self._read_up_to: dict[int, int] = {}
        self._committing: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = self._call(self._start(bootstrap, group, timing, login))

    async def _start(self, bootstrap: str, group: str, timing: Timing, login: Mapping[str, str]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=timing.session_ms,
            heartbeat_interval_ms=timing.heartbeat_ms,
            request_timeout_ms=timing.request_ms,
            metadata_max_age_ms=timing.metadata_ms,
            partition_assignment_strategy=(RangePartitionAssignor,),
            **of_python_clients(login),
        )
        consumer.subscribe([self._topic], listener=self)
        # Returns when the group has let it in, for which others may have to be polled: so this does not wait for it.
        self._starting = asyncio.ensure_future(self._join(consumer))
        return consumer

    async def _join(self, consumer: Any) -> None:
        """It gives up at once if there is no broker just now."""
        for _ in range(int(DEADLINE_S / 0.2)):
            try:
                await consumer.start()
                return
            except aiokafka.errors.KafkaConnectionError:
                await asyncio.sleep(0.2)
        await consumer.start()

    def on_partitions_revoked(self, revoked: Any) -> None:
        """It repeats a commit in the generation of that moment, in which another member may own the partitions."""
        self._read_up_to.clear()
        if self._committing is not None:
            self._committing.cancel()

    def on_partitions_assigned(self, assigned: Any) -> None:
        generation = self._consumer._coordinator.generation
        self.given.append(Given(generation, frozenset(each.partition for each in assigned)))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(2 * DEADLINE_S)

    def poll(self) -> list[Read]:
        return self._call(self._poll())

    async def _poll(self) -> list[Read]:
        if not self._starting.done():
            await asyncio.wait([self._starting], timeout=0.05)
            return []
        self._starting.result()
        found = await self._consumer.getmany(timeout_ms=50)
        read = [Read(each.partition, each.offset, each.value) for records in found.values() for each in records]
        self._read_up_to |= {each.partition: each.offset + 1 for each in read}
        return read

    def commit(self) -> dict[int, int]:
        return self._call(self._commit())

    async def _commit(self) -> dict[int, int]:
        offsets = dict(self._read_up_to)
        if not offsets:
            return {}
        committing = self._committing = asyncio.create_task(
            self._consumer.commit(
                {aiokafka.TopicPartition(self._topic, partition): offset for partition, offset in offsets.items()}
            )
        )
        await asyncio.wait([committing])
        if committing.cancelled():
            raise Refused("its partitions were revoked meanwhile")
        try:
            committing.result()
        except aiokafka.errors.KafkaError as error:
            raise Refused(repr(error)) from error
        return offsets

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def leave(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _stop(self) -> None:
        """aiokafka 0.14 cancels a fetch that has failed and waits to be repeated, and lets out that it was cancelled.

        It has left the group by then, but has not closed its connections.
        """
        await asyncio.wait([self._starting])
        with contextlib.suppress(asyncio.CancelledError):
            await self._consumer.stop()
        await self._consumer._client.close()


NewMember = Callable[..., Member]

KINDS: dict[str, NewMember] = {
    "confluent": Confluent,
    "confluent-cooperative": ConfluentCooperative,
    "confluent-consumer-protocol": ConfluentConsumerProtocol,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}
