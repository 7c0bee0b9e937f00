"""Clients of every kind that use a cluster while it is moved: each writes numbers to a topic of its own, with a
producer that lives as long as it does, and reads them in a group.

Laws: no call fails; the log has every number once, in order; the group has read every number and skipped none;
committed offsets never go back. A commit that the group refuses, because it is just being moved, is counted.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka

from chaos import foreign_members
from clients.drivers.java import JavaClient
from clients.drivers.kafkajs import KafkaJs
from clients.drivers.process import ProcessClient, to_text
from clients.group_members import KINDS, Member, Refused, Timing
from penstock.client.wire.partition_log import PartitionLog
from penstock.model.ids import TopicPartition

T = TypeVar("T")
PATIENCE_S = 180.0
# As programs have it, and not as short as tests of groups want it.
TIMING = Timing(session_ms=30_000, heartbeat_ms=1000)


class Writer(Protocol):
    def write(self, topic: str, numbers: Sequence[int]) -> None:
        """They are acknowledged on return, or committed."""

    def close(self) -> None: ...


class Librdkafka:
    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def write(self, topic: str, numbers: Sequence[int]) -> None:
        failed: list[str] = []

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is not None:
                failed.append(str(error))

        for number in numbers:
            self._producer.produce(topic, str(number), on_delivery=delivered)
        assert self._producer.flush(PATIENCE_S) == 0 and not failed, failed

    def close(self) -> None:
        self._producer.flush(0)


class KafkaPython:
    def __init__(self, bootstrap: str, name: str) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, reconnect_backoff_max_ms=500
        )

    def write(self, topic: str, numbers: Sequence[int]) -> None:
        for answer in [self._producer.send(topic, str(number).encode()) for number in numbers]:
            answer.get(PATIENCE_S)

    def close(self) -> None:
        self._producer.close(10)


class AioKafka:
    def __init__(self, bootstrap: str, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer = self._call(self._start(bootstrap))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    async def _start(self, bootstrap: str) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, metadata_max_age_ms=5000
        )
        await producer.start()
        return producer

    def write(self, topic: str, numbers: Sequence[int]) -> None:
        self._call(self._write(topic, numbers))

    async def _write(self, topic: str, numbers: Sequence[int]) -> None:
        await asyncio.gather(*[await self._producer.send(topic, str(number).encode()) for number in numbers])

    def close(self) -> None:
        self._call(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class InTransactions:
    """A transactional producer of a client in another process."""

    def __init__(self, new: Callable[[str], ProcessClient], bootstrap: str, name: str) -> None:
        self._client = new(bootstrap)
        self._name = f"{name}-writer"
        self._client.call("new_producer", producer=self._name, id=self._name)

    def write(self, topic: str, numbers: Sequence[int]) -> None:
        values = [to_text(str(number).encode()) for number in numbers]
        self._client.call("begin", producer=self._name)
        self._client.call("send", producer=self._name, topic=topic, values=values)
        self._client.call("commit_transaction", producer=self._name)

    def close(self) -> None:
        self._client.close()


class Java(InTransactions):
    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(JavaClient, bootstrap, name)


class KafkaJsWriter(InTransactions):
    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(functools.partial(KafkaJs, patient=True), bootstrap, name)


WRITERS: dict[str, Callable[[str, str], Writer]] = {
    "librdkafka": Librdkafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java": Java,
    "kafkajs": KafkaJsWriter,
}
MEMBERS = KINDS | foreign_members.KINDS


class Witness:
    def __init__(self, bootstrap: str, writer: str, members: Sequence[str], *, each_s: float = 0.3) -> None:
        """The topic, with one partition, has the name of the writer."""
        self.topic = writer
        self.acknowledged = 0
        self.reached = dict.fromkeys(members, 0)
        self.committed: dict[str, list[int]] = {each: [] for each in members}
        self.refused = 0
        self.errors: list[str] = []
        self.longest_s = 0.0
        self._bootstrap = bootstrap
        self._each_s = each_s
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(self._write,), daemon=True)]
        self._threads += [
            threading.Thread(target=self._guarded, args=(self._read, kind), daemon=True) for kind in members
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive(), f"{self.topic} did not finish"

    def wait_for_more(self, records: int = 5) -> float:
        """Until so many more are written, and read by all; the longest write since the last call, in seconds."""
        goal = self.acknowledged + records
        deadline = time.monotonic() + PATIENCE_S
        while min(self.acknowledged, *self.reached.values()) < goal:
            assert time.monotonic() < deadline and not self.errors, (
                f"{self.topic}: {self.acknowledged} written, {self.reached} read of {goal}; {self.errors}"
            )
            time.sleep(0.05)
        longest, self.longest_s = self.longest_s, 0.0
        return longest

    def _guarded(self, work: Callable[..., None], *arguments: str) -> None:
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001, of any client: the test fails with it
            self.errors.append(f"{work.__name__}{arguments}: {error!r}")

    def _write(self) -> None:
        writer = WRITERS[self.topic](self._bootstrap, self.topic)
        while not self._stop.wait(self._each_s):
            begun = time.monotonic()
            writer.write(self.topic, range(self.acknowledged, self.acknowledged + 3))
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.acknowledged += 3
        writer.close()

    def _read(self, kind: str) -> None:
        member: Member = MEMBERS[kind](self._bootstrap, f"{self.topic}-{kind}", self.topic, TIMING)
        committed_at = 0.0
        while not self._stop.is_set() or (self.reached[kind] < self.acknowledged and not self.errors):
            for read in member.poll():
                number = int(read.value)
                if number > self.reached[kind]:
                    self.errors.append(f"{kind}: {number} follows {self.reached[kind]}")
                self.reached[kind] = max(self.reached[kind], number + 1)
            if time.monotonic() > committed_at + 1.0:
                committed_at = time.monotonic()
                self._commit(member, kind)
        member.leave()

    def _commit(self, member: Member, kind: str) -> None:
        try:
            offsets = member.commit()
        except Refused:
            self.refused += 1
            return
        if 0 in offsets:
            self.committed[kind].append(offsets[0])

    def check(self, bootstrap: str) -> None:
        assert not self.errors, self.errors[:5]
        with PartitionLog(bootstrap, TopicPartition(self.topic, 0)) as log:
            found = [int(record.value or b"-1") for record in log.read()]
        assert found == list(range(self.acknowledged)), f"{self.topic} lost, doubled or reordered"
        for kind, offsets in self.committed.items():
            assert offsets and offsets == sorted(offsets), f"{kind}: committed offsets went back"
            assert self.reached[kind] == self.acknowledged, f"{kind} has not read everything"


class InFlight:
    """Java's idempotent producer with five requests in flight, each of one batch: it keeps them in order, and repeats
    none, whoever leads."""

    RECORDS = 40

    def __init__(self, bootstrap: str, topic: str, *, each_s: float = 0.4) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._each_s = each_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.sent = 0
        self.errors: list[str] = []

    def __enter__(self) -> InFlight:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)

    def _write(self) -> None:
        try:
            client = JavaClient(self._bootstrap)
            try:
                client.call("new_pipelining_producer", producer=self._topic)
                while not self._stop.wait(self._each_s):
                    values = [to_text(b"%d" % number) for number in range(self.sent, self.sent + self.RECORDS)]
                    client.call("pipeline", producer=self._topic, topic=self._topic, values=values)
                    self.sent += self.RECORDS
            finally:
                client.close()
        except Exception as error:  # noqa: BLE001, of any kind: the test fails with it
            self.errors.append(repr(error))

    def check(self) -> None:
        assert not self._thread.is_alive() and not self.errors, self.errors
        with PartitionLog(self._bootstrap, TopicPartition(self._topic, 0)) as log:
            found = [int(record.value or b"-1") for record in log.read()]
        assert self.sent and found == list(range(self.sent)), f"{self._topic} lost, doubled or reordered"
