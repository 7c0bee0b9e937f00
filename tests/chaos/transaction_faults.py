"""What can happen to workers that read, process and write in transactions, and to their cluster."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from chaos.group_faults import PROGRESS_S, SESSION_MS, asking, committed
from chaos.member_scene import INTERNAL_PARTITIONS
from chaos.outages import killed, paused, stopped
from chaos.programs import KILLED, Event, Program
from chaos.secured import Logins, without_login
from chaos.workload import Writer
from clients.librdkafka import close
from narrowing import present
from penstock.broker.coordinators.hashing import partition_for
from penstock.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from penstock.testing.clusters import RunningCluster
from penstock.testing.nodes import RunningNode
from waiting import wait_until

TRANSACTION_TIMEOUT_MS = 6000
PROTOCOLS = {
    "classic": {"group.protocol": "classic", "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300},
    "consumer": {"group.protocol": "consumer"},
}


@dataclass
class TransactionScene:
    """Workers by the number in their transactional id: one that died is followed by another with the same."""

    cluster: RunningCluster
    writer: Writer
    source: str
    target: str
    group: str
    protocol: str
    rng: random.Random
    logins: Logins = without_login
    workers: dict[int, Program] = field(default_factory=dict)
    zombies: list[Program] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        login = self.logins("auditor")
        self._asking = asking(self.cluster.bootstrap, self.group, login)
        self.output = Output(self.cluster.bootstrap, self.target, self.writer.partitions, login)

    def transactional_id(self, number: int) -> str:
        return f"{self.group}-{number}"

    def start_worker(self, number: int) -> None:
        settings = {
            "bootstrap": self.cluster.bootstrap,
            "source": self.source,
            "target": self.target,
            "group": self.group,
            "transactional_id": self.transactional_id(number),
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            "request_ms": 5000,
            "consumer": PROTOCOLS[self.protocol],
            "login": self.logins("worker"),
        }
        self.workers[number] = Program("chaos.transactional_worker", settings, self._heard)

    def _heard(self, worker: Program, event: Event) -> None:
        self.counts[event["event"]] += 1
        if "reason" in event:
            self.reasons[event["reason"]] += 1

    def resize(self, count: int) -> None:
        for number in range(count):
            if number not in self.workers:
                self.start_worker(number)
        for number in [number for number in self.workers if number >= count]:
            self.counts["hung"] += self.workers.pop(number).leave() == KILLED

    def tend(self) -> None:
        """Start a successor of each worker that ended by itself."""
        for number, worker in list(self.workers.items()):
            if not worker.is_running:
                worker.kill()
                self.start_worker(number)

    def busy_worker(self) -> int:
        """The number of one, after waiting until it has begun another transaction."""
        number = self.rng.choice(list(self.workers))
        before = self.counts["began"]
        self.wait_until(lambda: self.counts["began"] > before, "another transaction")
        return number

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        def state() -> str:
            for worker in self.workers.values():
                worker.print_stacks()
            time.sleep(1)  # they write for themselves
            return f"{what}; {dict(self.counts)}, {self.reasons.most_common(5)}"

        wait_until(condition, state, PROGRESS_S, between=self.tend)

    def progress(self) -> None:
        """What is sent from now on is processed, of all partitions."""
        self.writer.wait_for_all_after(self.writer.sent)
        self.catch_up()

    def catch_up(self) -> None:
        """The group has committed everything that was acknowledged to the writer."""
        ends: Counter[int] = Counter()
        for partition, offset in self.writer.acknowledged.copy().values():
            ends[partition] = max(ends[partition], (offset or 0) + 1)
        asked = [TopicPartition(self.source, partition) for partition in ends]
        self.wait_until(
            lambda: all(each.offset >= ends[each.partition] for each in committed(self._asking, asked)),
            f"{dict(ends)} is not processed",
        )

    def check_output(self) -> None:
        """What was acknowledged to the writer until now has been processed, each record once."""
        sent = set(self.writer.acknowledged.copy())
        self.catch_up()
        self.output.read_all(sent)

    def whole(self) -> None:
        for topic in (self.source, self.target, CONSUMER_OFFSETS, TRANSACTION_STATE):
            self.cluster.wait_for_isr(topic)

    def group_coordinator(self) -> RunningNode:
        return self.cluster.leader_of(CONSUMER_OFFSETS, partition_for(self.group, INTERNAL_PARTITIONS))

    def transaction_coordinator(self) -> RunningNode:
        key = self.transactional_id(self.rng.choice(list(self.workers)))
        return self.cluster.leader_of(TRANSACTION_STATE, partition_for(key, INTERNAL_PARTITIONS))

    def leader(self) -> RunningNode:
        return self.cluster.leader_of(self.target, self.rng.randrange(self.writer.partitions))

    def end(self) -> None:
        for worker in itertools.chain(self.workers.values(), self.zombies):
            worker.kill()
        self._asking.close()


class Output:
    """What readers of committed data see of the target, from its beginning: numbers, as the writer gave them.

    Each time with a new client, and while no broker goes away: see `Program.leave`.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, login: Mapping[str, str]) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "output",
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
            **login,
        }
        self._topic = topic
        self._positions = dict.fromkeys(range(partitions), 0)
        self._places: dict[int, str] = {}

    @property
    def found(self) -> Set[int]:
        return self._places.keys()

    def read_all(self, wanted: Set[int]) -> None:
        """Until these are there; nothing more than once."""
        self._read(lambda _: wanted <= self.found, lambda: f"missing are {sorted(wanted - self.found)[:5]}")

    def read_to_end(self) -> None:
        """When all writers have ended: a topic that is always written to may have no end for its reader."""
        self._read(lambda at_end: len(at_end) == len(self._positions), lambda: "there is no end")

    def _read(self, is_enough: Callable[[set[int]], bool], what: Callable[[], str]) -> None:
        consumer = Consumer(self._settings)
        at_end: set[int] = set()
        deadline = time.monotonic() + PROGRESS_S
        try:
            consumer.assign([TopicPartition(self._topic, *place) for place in self._positions.items()])
            while not is_enough(at_end):
                assert time.monotonic() < deadline, what()
                for message in consumer.consume(1000, 0.1):
                    error = message.error()
                    if error is None:
                        self._see(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(present(message.partition()))
        finally:
            close(consumer)

    def _see(self, message: Message) -> None:
        number = int(present(message.value()).split(b":", 1)[0])
        place = f"{message.partition()}@{message.offset()} of {message.timestamp()[1]}"
        assert number not in self._places, f"{number} was written more than once: {self._places[number]}, {place}"
        self._places[number] = place
        self._positions[present(message.partition())] = present(message.offset()) + 1


def is_all_decided(bootstrap: str, topics: dict[str, int], login: Mapping[str, str] | None = None) -> bool:
    """Whether readers of what is committed get to the end of every partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **(login or {})})
    asked = {
        TopicPartition(topic, partition): OffsetSpec.latest()
        for topic, count in topics.items()
        for partition in range(count)
    }
    ends, stable = (
        {
            partition: future.result(30).offset
            for partition, future in admin.list_offsets(asked, isolation_level=level).items()
        }
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    )
    return bool(ends == stable)


def kill_worker(scene: TransactionScene) -> None:
    scene.workers[scene.busy_worker()].kill()
    scene.progress()


def zombie(scene: TransactionScene) -> None:
    """Silent until another one has taken its place; then it goes on with its transaction."""
    number = scene.busy_worker()
    worker = scene.workers.pop(number)
    with paused(worker):
        scene.zombies.append(worker)
        scene.start_worker(number)
        scene.progress()
    scene.wait_until(lambda: not worker.is_running, "a zombie notices that another took its place")


def pause_worker(scene: TransactionScene) -> None:
    """Silent until the group and its transaction have gone on without it."""
    number = scene.busy_worker()
    if len(scene.workers) == 1:
        scene.start_worker(number + 1)
    with paused(scene.workers[number]):
        scene.progress()
    scene.progress()


def kill_transaction_coordinator(scene: TransactionScene) -> None:
    scene.busy_worker()
    with killed(scene.transaction_coordinator()):
        scene.progress()


def kill_group_coordinator(scene: TransactionScene) -> None:
    scene.busy_worker()
    with killed(scene.group_coordinator()):
        scene.progress()


def kill_leader(scene: TransactionScene) -> None:
    scene.busy_worker()
    with killed(scene.leader()):
        scene.progress()


def stop_transaction_coordinator(scene: TransactionScene) -> None:
    with stopped(scene.transaction_coordinator()):
        scene.progress()


def pause_transaction_coordinator(scene: TransactionScene) -> None:
    with paused(scene.transaction_coordinator()):
        scene.progress()


def kill_coordinator_and_worker(scene: TransactionScene) -> None:
    """Its transaction is open, and ended by a coordinator that knows it from the log."""
    worker = scene.workers[scene.busy_worker()]
    with killed(scene.transaction_coordinator()):
        worker.kill()
        scene.progress()


def kill_controller(scene: TransactionScene) -> None:
    with killed(scene.cluster.active_controller()):
        scene.progress()


def restart_all_brokers(scene: TransactionScene) -> None:
    for broker in scene.cluster.brokers:
        assert broker.stop() == 0
        broker.start()
        scene.whole()
    scene.progress()


FAULTS: dict[str, Callable[[TransactionScene], None]] = {
    fault.__name__: fault
    for fault in (
        kill_worker,
        zombie,
        pause_worker,
        kill_transaction_coordinator,
        kill_group_coordinator,
        kill_leader,
        stop_transaction_coordinator,
        pause_transaction_coordinator,
        kill_coordinator_and_worker,
        kill_controller,
        restart_all_brokers,
    )
}
