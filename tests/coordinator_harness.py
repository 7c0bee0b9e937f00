"""A partition with a coordinator on it, and a shard that is easy to look at: for tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from log_harness import open_log, topic
from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.partition import CoordinatorPartition, Producer
from penstock.broker.coordinators.serde import GROUP_RECORDS
from penstock.broker.coordinators.shard import Waiting
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.partitions.replica import Replica, ReplicaContext
from penstock.broker.partitions.wakeups import Wakeups
from penstock.coordinator.decision import CoordinatorRecord, Decision, Reply
from penstock.metadata.image import EMPTY_IMAGE
from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.declaration import Message
from penstock.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop, simulate

COMMIT_TIMEOUT_MS = 5000


class Said(Message):
    """A response that is easy to look at."""

    __slots__ = ("what",)
    what: object

    def __init__(self, what: object) -> None:
        self.what = what


class Ledger:
    """A shard: numbers by name. Those written in a transaction wait for its end."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.parked: list[Any] = []
        self.deadline: int | None = None
        self.ticks = 0
        self.is_loaded = False
        self.on_tick: Callable[[], Decision] = lambda: Decision([], [])

    def replay(self, key: Any, value: Any, producer_id: int, now_ms: int) -> None:
        numbers = self.numbers if producer_id < 0 else self.pending.setdefault(producer_id, {})
        if value is None:
            numbers.pop(key.group, None)
        else:
            numbers[key.group] = value.offset

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        pending = self.pending.pop(producer_id, {})
        if committed:
            self.numbers |= pending

    def loaded(self, now_ms: int) -> Decision:
        self.is_loaded = True
        return Decision([], [])

    def tick(self, now_ms: int) -> Decision:
        self.ticks += 1
        self.deadline = None
        return self.on_tick()

    def resigned(self) -> list[Reply]:
        parked, self.parked = self.parked, []
        return [Reply(token, Said("parked until resigned")) for token in parked]


def record(name: str, number: int, padding: int = 0) -> CoordinatorRecord:
    value = OffsetCommitValue(offset=number, metadata="x" * padding)
    return CoordinatorRecord(OffsetCommitKey(group=name, topic="t", partition=0), value)


class Clock:
    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    boottime_ms = now_ms


class World:
    """A replica that leads, with one follower unless it is `alone`, and the coordinator on it."""

    def __init__(self, loop: SimulatedLoop, *, alone: bool = False, settings: TopicSettings | None = None) -> None:
        self.loop = loop
        self.clock = Clock(loop)
        self.disk = SimulatedDisk()
        self.rewritten = 0
        wakeups = Wakeups(loop)
        context = ReplicaContext(
            broker_id=1,
            clock=self.clock,
            elapsed_ms=self.clock.now_ms,
            wakeups=wakeups,
            flusher=Flusher(loop, wakeups.run, lambda replica, reason: None),
            lag_max_ms=30_000,
            registered=lambda broker_id: broker_id,
            propose=lambda replica, proposal: None,
            start_moved=lambda replica: None,
            repair=lambda replica: None,
            rewritten=self._note_rewritten,
        )
        log = open_log(self.disk, settings or topic(segment_bytes=1_000_000, min_insync_replicas=1 if alone else 2))
        self.replica = Replica(log, TopicPartition("events", 0), bytes(16), context)
        self.brokers = (1,) if alone else (1, 2)
        self.epoch = 0
        self.is_sure = True
        self.shards: list[Ledger] = []
        self.answers: list[tuple[str, Any]] = []
        self.coordinator: Coordinator[Ledger] = Coordinator(
            "events",
            GROUP_RECORDS,
            self._new_shard,
            lambda shard, key, value, producer_id, now_ms, offset: shard.replay(key, value, producer_id, now_ms),
            loop=loop,
            clock=self.clock,
            metadata=SimpleNamespace(image=EMPTY_IMAGE),
            wakeups=wakeups,
            partitions_default=1,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            load_buffer_size=1 << 20,
            is_sure=lambda: self.is_sure,
            no_change=record("", 0),
            end_transaction=Ledger.replay_end_transaction,
        )

    def _note_rewritten(self) -> None:
        self.rewritten += 1

    def _new_shard(self, index: int, leader_epoch: int) -> Ledger:
        self.shards.append(Ledger())
        return self.shards[-1]

    def lead(self, isr: tuple[int, ...] | None = None, *, same_epoch: bool = False) -> None:
        self.epoch += not same_epoch
        old = self.replica.partition
        partition_epoch = 0 if old is None else old.partition_epoch + 1
        self.replica.lead(
            Partition(
                replicas=self.brokers,
                directories=(bytes(16),) * len(self.brokers),
                isr=isr or self.brokers,
                leader=1,
                leader_epoch=self.epoch,
                partition_epoch=partition_epoch,
            )
        )
        self.coordinator.replica_changed(self.replica)

    def follow(self) -> None:
        self.epoch += 1
        self.replica.follow(Partition(self.brokers, (bytes(16),) * 2, self.brokers, 2, self.epoch, 100))
        self.coordinator.replica_changed(self.replica)

    def catch_up(self) -> None:
        """The follower has everything."""
        end = self.replica.log.log_end_offset
        self.replica.fetched_by(2, end, 0, 2, self.clock.now_ms())

    def waiting(self, who: str) -> Waiting:
        def answer(response: Said | ErrorCode) -> None:
            self.answers.append((who, response.what if isinstance(response, Said) else response))

        return Waiting(answer, lambda code: code)

    def put(self, who: str, name: str, number: int, *, padding: int = 0, **how: Any) -> None:
        self.coordinator.submit(
            name,
            lambda shard, token, now_ms: Decision([record(name, number, padding)], [Reply(token, Said("done"))]),
            self.waiting(who),
            **how,
        )

    def producer(self, producer_id: int, epoch: int) -> Producer:
        """As if the coordinator of its transaction had been asked, and had agreed."""
        header = read_header(build_batch((), producer_id=producer_id, producer_epoch=epoch))
        verification = self.replica.log.producers.begin_verification(header, self.clock.now_ms())
        return Producer(producer_id, epoch, verification)

    def look(self, who: str, name: str, **how: Any) -> None:
        self.coordinator.submit(
            name,
            lambda shard, token, now_ms: Decision([], [Reply(token, Said(shard.numbers.get(name)))]),
            self.waiting(who),
            **how,
        )

    def park(self, who: str) -> None:
        def operation(shard: Ledger, token: Waiting, now_ms: int) -> Decision:
            shard.parked.append(token)
            return Decision([], [])

        self.coordinator.submit("x", operation, self.waiting(who))

    @property
    def partition(self) -> CoordinatorPartition[Ledger]:
        return self.coordinator.partitions[0]

    @property
    def shard(self) -> Ledger:
        shard = self.partition.shard
        assert shard is not None
        return shard

    def take(self) -> list[tuple[str, Any]]:
        answers, self.answers = self.answers, []
        return answers


async def turn(loop: SimulatedLoop, times: int = 3) -> None:
    for _ in range(times):
        await _soon(loop)


async def sleep(loop: SimulatedLoop, seconds: float) -> None:
    future = loop.create_future()
    loop.call_later(seconds, future.set_result, None)
    await future


def _soon(loop: SimulatedLoop) -> Any:
    future = loop.create_future()
    loop.call_soon(future.set_result, None)
    return future


Story = Callable[[World], Coroutine[Any, Any, None]]


def run(story: Story, **world: Any) -> None:
    async def program(loop: SimulatedLoop) -> None:
        await story(World(loop, **world))

    simulate(program)
