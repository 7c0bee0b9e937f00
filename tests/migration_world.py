"""What uses a cluster of Apache Kafka's and Penstock's nodes while tests move it, and the laws that must hold.

`Load` writes numbered records with an idempotent librdkafka producer, and reads them in a consumer group, for as long
as it runs. Its laws, checked at the end from the log itself: everything that was acknowledged is there once, in the
order in which it was sent; the group has read everything and skipped nothing; committed offsets never went back,
neither as the group was told nor as the coordinator tells others.

`Transactions` writes in transactions, and aborts every fourth; what is aborted is sent again with the same number. So
readers of committed records must see each number once, in order: an aborted record that is seen is one too many.

`LatestValues` writes values and tombstones under few keys of a compacted topic. Each replica cleans its own log, so the
law is that the last acknowledged value of every key is there, and that keys with a tombstone last have none.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

from clients.librdkafka import close
from narrowing import present
from penstock.client.wire.admin import Admin
from penstock.client.wire.partition_log import PartitionLog
from penstock.model.ids import TopicPartition
from penstock.records.batch import iterate_headers
from penstock.records.record import Record, iterate_records
from waiting import wait_until

QUIET: Mapping[str, int] = {"log_level": 0}
IDEMPOTENT: Mapping[str, bool | int] = {
    "enable.idempotence": True,
    # With more of them librdkafka 2.16 may send a later request before those that it repeats when a leader dies. The
    # new leader refuses its sequence numbers, and librdkafka sends what was stored once more, with a new producer
    # epoch: seen with leaders of Apache Kafka alone.
    "max.in.flight": 1,
    "message.timeout.ms": 300_000,
}
SETTLE_S = 180.0
COMMAND_S = 400.0


def migrate(*arguments: str, bootstrap: str, environment: Mapping[str, str] | None = None) -> str:
    """Run `penstock migrate`; returns what it prints."""
    command = [sys.executable, "-m", "penstock", "migrate", *arguments, "--bootstrap-server", bootstrap]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=COMMAND_S)
    assert outcome.returncode == 0, f"{' '.join(arguments)}: {outcome.stdout}{outcome.stderr}"
    return outcome.stdout


def refused(*arguments: str, bootstrap: str) -> str:
    """Run `penstock migrate`, which must fail; returns what it says."""
    command = [sys.executable, "-m", "penstock", "migrate", *arguments, "--bootstrap-server", bootstrap]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S)
    assert outcome.returncode != 0, f"{' '.join(arguments)}: {outcome.stdout}{outcome.stderr}"
    assert "Traceback" not in outcome.stderr, outcome.stderr
    return outcome.stderr


class Command:
    """`penstock migrate` at work, beside the test."""

    def __init__(self, *arguments: str, bootstrap: str, log: Path) -> None:
        """`log`: a file for what it says."""
        self._log = log
        self._arguments = arguments
        command = [sys.executable, "-m", "penstock", "migrate", *arguments, "--bootstrap-server", bootstrap]
        with open(log, "ab") as file:
            file.write(f"-- {' '.join(arguments)}\n".encode())
            file.flush()
            self._begin = file.tell()
            self._process = subprocess.Popen(command, stdout=file, stderr=file)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        return self._log.read_bytes()[self._begin :].decode()

    def wait_for(self, words: str = "") -> None:
        """Until it has said this, or anything: then it is at work."""
        wait_until(lambda: (words or "\n") in self.said() or not self.running, f"{self._arguments}", COMMAND_S)
        assert self.running and words in self.said(), f"{self._arguments} has ended: {self.said()}"

    def end(self, signal_number: signal.Signals) -> None:
        assert self.running, f"{self._arguments} has ended: {self.said()}"
        self._process.send_signal(signal_number)
        assert self._process.wait(COMMAND_S) != 0

    def wait(self) -> int:
        return self._process.wait(COMMAND_S)


@dataclass(frozen=True, slots=True)
class Pauses:
    """The longest time from sending a record to its acknowledgement, and until the group had read it, in seconds."""

    producer: float
    group: float


class Load:
    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        rate: float = 200.0,
        settings: Mapping[str, str] | None = None,
        protocol: str = "classic",
    ) -> None:
        """`settings`: of librdkafka, for a cluster with users; `protocol`: of the group."""
        self._settings = dict(settings or {})
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._protocol = protocol
        self._stop = threading.Event()
        self._abandoned = False
        self.sent = [0] * partitions
        self.acknowledged = [0] * partitions
        # The number that the group has to read next, by partition: it may read some again, and must not skip any.
        self.reached = [0] * partitions
        self.committed: list[list[int]] = [[] for _ in range(partitions)]
        self.errors: list[str] = []
        self._sent_at: list[list[float]] = [[] for _ in range(partitions)]
        self._longest = [0.0, 0.0]
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]

    @property
    def group(self) -> str:
        return f"{self._topic}-readers"

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._abandoned = kind is not None  # then nobody wants to know the rest
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def step(self) -> Pauses:
        """The longest since the last call."""
        pauses = Pauses(*self._longest)
        self._longest = [0.0, 0.0]
        return pauses

    def wait_for_more(self, records: int = 10) -> None:
        """Until so many more of each partition are acknowledged, and the group has read them."""
        goal = [sent + records for sent in self.sent]
        deadline = time.monotonic() + SETTLE_S

        def is_there() -> bool:
            both = zip(goal, self.acknowledged, self.reached, strict=True)
            return all(acknowledged >= wanted <= reached for wanted, acknowledged, reached in both)

        while not is_there():
            assert time.monotonic() < deadline and not self.errors, (
                f"{self._topic}: {self.acknowledged} acknowledged, {self.reached} read of {goal}: {self.errors[:5]}"
            )
            time.sleep(0.05)

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                **IDEMPOTENT,
                **QUIET,
                **self._settings,
            }
        )
        begun = time.monotonic()
        while not self._stop.is_set():
            if sum(self.sent) < (time.monotonic() - begun) * self._rate and len(producer) < 5_000:
                partition = sum(self.sent) % self._partitions
                self._sent_at[partition].append(time.monotonic())
                producer.produce(
                    self._topic, str(self.sent[partition]), partition=partition, on_delivery=self._delivered
                )
                self.sent[partition] += 1
                producer.poll(0)
            else:
                producer.poll(0.002)
        producer.flush(0.0 if self._abandoned else SETTLE_S)
        producer.purge()

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        partition = present(message.partition())
        self._note(0, time.monotonic() - self._sent_at[partition][self.acknowledged[partition]])
        self.acknowledged[partition] += 1

    def _note(self, place: int, seconds: float) -> None:
        self._longest[place] = max(self._longest[place], seconds)

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **QUIET,
                **self._settings,
            }
        )
        consumer.subscribe([self._topic])
        last_commit = time.monotonic()
        while not self._stop.is_set() or (self.reached != self.sent and not self.errors and not self._abandoned):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._read(present(message.partition()), int(present(message.value())))
            if time.monotonic() - last_commit > 1.0:
                last_commit = time.monotonic()
                self._commit(consumer)
        if not self._abandoned:
            self._commit(consumer)
        close(consumer)

    def _read(self, partition: int, number: int) -> None:
        if number > self.reached[partition]:
            self.errors.append(f"{number} of partition {partition} follows {self.reached[partition]}")
        if number >= self.reached[partition]:
            self._note(1, time.monotonic() - self._sent_at[partition][number])
            self.reached[partition] = number + 1

    def _commit(self, consumer: confluent_kafka.Consumer) -> None:
        try:
            for each in consumer.commit(asynchronous=False) or ():
                if each.error is None and each.offset >= 0:
                    self.committed[each.partition].append(each.offset)
        except confluent_kafka.KafkaException as error:
            code = error.args[0].code()
            harmless = (confluent_kafka.KafkaError._NO_OFFSET, *_OF_A_GROUP_THAT_MOVES)
            if code not in harmless and not error.args[0].retriable():
                self.errors.append(f"commit: {error}")

    def check_committed(self, admin: Admin) -> None:
        """The coordinator, whoever that is now, knows what the group has committed last, or something later."""
        known = [offsets[-1] if offsets else 0 for offsets in self.committed]
        found = admin.groups.offsets(self.group)
        for partition, offset in enumerate(known):
            told = found.get(TopicPartition(self._topic, partition))
            assert not offset or (told is not None and told.offset >= offset), (
                f"{self.group} had committed {offset} of partition {partition}, and has {told}"
            )

    def check(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        """After it has stopped: the laws."""
        assert not self.errors, self.errors[:5]
        for partition in range(self._partitions):
            with PartitionLog(bootstrap, TopicPartition(self._topic, partition), options=options) as log:
                found = [int(record.value or b"-1") for record in log.read()]
            assert self.acknowledged[partition] == self.sent[partition]
            assert found == list(range(self.sent[partition])), f"partition {partition} lost, doubled or reordered"
            assert self.reached[partition] == self.sent[partition], f"partition {partition} was not read whole"
            assert self.committed[partition] == sorted(self.committed[partition]), "committed offsets went back"


# A member that the group has given up meanwhile joins again, and reads from what was committed; a coordinator that has
# just taken over is asked again with the next commit.
_OF_A_GROUP_THAT_MOVES = (
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
    confluent_kafka.KafkaError.STALE_MEMBER_EPOCH,
)


class Transactions:
    """A writer of transactions and a reader of what is committed, in a group with the new protocol."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        each_s: float = 0.2,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`each_s`: the time from one transaction to the next."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._each_s = each_s
        self._settings = dict(settings or {})
        self._stop = threading.Event()
        self.committed = 0  # transactions, with one record for each partition
        self.aborted = 0
        self.refused: list[str] = []  # transactions that the cluster made the writer abort
        self.errors: list[str] = []
        self.seen: list[dict[int, int]] = [{} for _ in range(partitions)]  # number by offset
        self._longest = 0.0
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._write, self._read)]

    def __enter__(self) -> Transactions:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def step(self) -> float:
        """The longest transaction since the last call, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def wait_for_more(self, transactions: int = 4) -> None:
        goal = self.committed + transactions
        deadline = time.monotonic() + SETTLE_S
        while self.committed < goal or any(len(seen) < goal for seen in self.seen):
            assert time.monotonic() < deadline and not self.errors, (
                f"{self.committed} of {goal} transactions, {[len(seen) for seen in self.seen]} read; "
                f"{self.errors[:5]} {self.refused[-5:]}"
            )
            time.sleep(0.05)

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self._topic}-writer",
                "transaction.timeout.ms": 120_000,
                **QUIET,
                **self._settings,
            }
        )
        try:
            producer.init_transactions(SETTLE_S)
            while not self._stop.wait(self._each_s):
                begun = time.monotonic()
                self._transaction(producer)
                self._longest = max(self._longest, time.monotonic() - begun)
        except confluent_kafka.KafkaException as error:
            self.errors.append(f"writer: {error}")

    def _transaction(self, producer: confluent_kafka.Producer) -> None:
        try:
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(self._topic, str(self.committed), partition=partition)
            if (self.committed + self.aborted) % 4 == 3:
                producer.flush(SETTLE_S)  # else they may not have been written at all
                producer.abort_transaction(SETTLE_S)
                self.aborted += 1
            else:
                self._commit(producer)
                self.committed += 1
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.refused.append(str(error))
            producer.abort_transaction(SETTLE_S)

    def _commit(self, producer: confluent_kafka.Producer) -> None:
        """Until it is known to be: what is retriable may have been carried out."""
        while True:
            try:
                producer.commit_transaction(SETTLE_S)
                return
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _reader(self, group: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": True,
                "auto.commit.interval.ms": 1000,
                "group.protocol": "consumer",
                **QUIET,
                **self._settings,
            }
        )

    def _read(self) -> None:
        consumer = self._reader(f"{self._topic}-readers")
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._saw(message, self.seen)
        close(consumer)

    def _saw(self, message: confluent_kafka.Message, seen: Sequence[dict[int, int]]) -> None:
        partition, offset, number = (
            present(message.partition()),
            present(message.offset()),
            int(present(message.value())),
        )
        if seen[partition].setdefault(offset, number) != number:
            self.errors.append(f"{self._topic}-{partition} at {offset} was {seen[partition][offset]}, is {number}")

    def check(self) -> None:
        """After it has stopped: readers see what was committed, once and in order, and nothing that was aborted."""
        assert not self.errors, self.errors[:5]
        assert self.aborted
        whole: list[dict[int, int]] = [{} for _ in range(self._partitions)]
        consumer = self._reader(f"{self._topic}-check")
        consumer.assign([confluent_kafka.TopicPartition(self._topic, index, 0) for index in range(self._partitions)])
        deadline = time.monotonic() + SETTLE_S
        while any(len(found) < self.committed for found in whole):
            assert time.monotonic() < deadline, f"{[len(found) for found in whole]} of {self.committed}"
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._saw(message, whole)
        message = consumer.poll(2.0)
        assert message is None or message.error() is not None, "more than was committed"
        close(consumer)
        for partition, found in enumerate(whole):
            assert [found[offset] for offset in sorted(found)] == list(range(self.committed)), f"partition {partition}"
            # The reader may have been stopped before the end; what it saw is what is there.
            assert self.seen[partition].items() <= found.items(), f"partition {partition} was read differently"


class LatestValues:
    """A writer of a compacted topic."""

    CONFIGS: Mapping[str, str] = {
        "cleanup.policy": "compact",
        "segment.ms": "4000",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "5000",
    }
    KEYS = 20
    TOMBSTONES = 7
    """Every so many records, one is a tombstone; the keys take turns with it, as the numbers have no common divisor."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        each_s: float = 0.05,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`each_s`: the time from one record to the next."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._each_s = each_s
        self._settings = dict(settings or {})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.acknowledged = 0
        self.latest: list[dict[bytes, bytes | None]] = [{} for _ in range(partitions)]
        """The last acknowledged value of each key, by partition; None for a tombstone."""
        self.errors: list[str] = []

    def __enter__(self) -> LatestValues:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                **IDEMPOTENT,
                **QUIET,
                **self._settings,
            }
        )
        sent = 0
        while not self._stop.wait(self._each_s) and not self.errors:
            value = None if sent % self.TOMBSTONES == 0 else str(sent)
            key, partition = f"key-{sent % self.KEYS}", sent % self._partitions
            producer.produce(self._topic, value, key=key, partition=partition, on_delivery=self._delivered)
            sent += 1
            producer.poll(0)
        producer.flush(SETTLE_S)
        producer.purge()
        if sent != self.acknowledged:
            self.errors.append(f"{self.acknowledged} of {sent} were acknowledged")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        self.latest[present(message.partition())][present(message.key())] = message.value()
        self.acknowledged += 1

    def check(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        """After it has stopped: readers find the last value of each key, and the log has been cleaned."""
        assert not self.errors, self.errors[:5]
        remaining = 0
        for partition in range(self._partitions):
            with PartitionLog(bootstrap, TopicPartition(self._topic, partition), options=options) as log:
                records = list(log.read())
            remaining += len(records)
            self._check(partition, records, "by its leader")
        assert remaining < self.acknowledged, "nothing was cleaned"

    def check_directory(self, data_directory: Path, partition: int) -> None:
        """The same of the files of one replica."""
        data = log_bytes(data_directory, self._topic, partition)
        records = [
            record
            for place, header in iterate_headers(data)
            if not header.is_control
            for record in iterate_records(data, place, header, max_size=len(data))
        ]
        self._check(partition, records, f"in {data_directory}")
        assert len(records) < self.acknowledged / self._partitions, f"{data_directory} was not cleaned"

    def _check(self, partition: int, records: Sequence[Record], where: str) -> None:
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets)), f"{self._topic}-{partition} {where}: not in order"
        found = {bytes(present(record.key)): record.value and bytes(record.value) for record in records}
        assert _without_tombstones(found) == _without_tombstones(self.latest[partition]), (
            f"{self._topic}-{partition} {where}"
        )


def _without_tombstones(values: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in values.items() if value is not None}


def wait_in_sync(
    bootstrap: str,
    expected: Mapping[str, Sequence[int]] | None = None,
    options: Mapping[str, str] | None = None,
    *,
    copies: bool = True,
) -> None:
    """Until all replicas are in sync; `expected`: the brokers of all partitions of a topic; `copies`: those too that a
    move is just making."""
    deadline = time.monotonic() + SETTLE_S
    with Admin(bootstrap, timeout=30.0, options=options) as admin:
        while True:
            moves = () if copies else admin.reassignments.list()
            made = {(each.topic, each.partition): set(each.adding) for each in moves}
            topics = admin.topics.list(internal=True)
            behind = [
                (topic.name, each)
                for topic in topics
                for each in topic.partitions
                if each.leader is None
                or not set(each.replicas) - made.get((topic.name, each.partition), set()) <= set(each.isr)
                or (expected and topic.name in expected and set(each.replicas) != set(expected[topic.name]))
            ]
            if not behind:
                return
            assert time.monotonic() < deadline, behind
            time.sleep(0.2)


def log_bytes(data_directory: Path | str, topic: str, partition: int) -> bytes:
    """The segments of a partition, one after the other."""
    segments = sorted(Path(data_directory, f"{topic}-{partition}").glob("*.log"))
    assert segments, f"{data_directory} has no segment of {topic}-{partition}"
    return b"".join(segment.read_bytes() for segment in segments)
