"""Story: a node under load that is killed, loses power, runs out of disk and is stopped, and its laws.

The laws are the design's durability table, as a model of what clients were promised:

- everything acknowledged, or returned to a consumer, is there after any number of process crashes, at the same offset;
- on a topic with `flush.messages=1` also after a power loss; on others it may be lost then, at either end;
- after a clean stop nothing may be lost, power loss or not;
- nothing is there that was not sent, nothing is torn, nothing twice, and each producer's records are in its order;
- an idempotent producer that repeats until it gets an acknowledgement has every record stored exactly once, in order;
- a topic exists if its creation was acknowledged, and does not if its deletion was;
- no producer id is given twice;
- a full disk is reported (KAFKA_STORAGE_ERROR, or no answer in time), and works again when there is space.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.compression import Codec
from penstock.simulator import requests
from penstock.simulator.client import Client, Lost, records_checked
from penstock.simulator.moments import Moments
from penstock.simulator.program import PAUSES, interleaves, play_on_loop
from penstock.simulator.stories import node_moves
from penstock.simulator.stories.broker_world import DATA, HOST, BrokerWorld
from penstock.simulator.story import StoryResult
from penstock.simulator.twins.loop import SimulatedLoop

# The errors that a client must expect of a broker that starts, stops, or has no space.
TRANSIENT = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
}
PATIENCE_S = 5.0
ROUNDS = 6
EVENTS = (
    "process crashes", "crashes within a step", "power losses", "clean stops", "clean stops, then power losses",
    "full disks", "disks full by blocks", "cold reads", "killed while starting", "connections lost",
    *node_moves.EVENTS, PAUSES,
)  # fmt: skip

CRITICAL = {
    "while it starts": ("kill", "power loss", "full disk"),
    "between append and sync": ("kill", "power loss", "stop"),
    "while a batch is rewritten": ("kill", "power loss", "stop"),
    "between a topic's deletion and that of its files": ("kill", "power loss", "stop"),
    "while the disk is full": ("kill",),
}


# -- Critical moments.


def has_unsynced(world: BrokerWorld) -> bool:
    return any(
        replica.log.settings.flush_messages == 1 and replica.log.recovery_point < replica.log.log_end_offset
        for replica in world.replicas
    )


def rewrites(world: BrokerWorld) -> bool:
    return any("_rewrite" in work for work in world.loop.at_work(HOST))


def writes_snapshot(world: BrokerWorld) -> bool:
    return world.node is not None and bool(world.node.quorum.snapshots.under_way)


def removes_topic(world: BrokerWorld) -> bool:
    """It is deleted, and its files are not."""
    return world.disk.exists(DATA) and any(name.endswith("-delete") for name in world.disk.list(DATA))


def is_full(world: BrokerWorld) -> bool:
    return world.disk.free_bytes("/") < 3000


MOMENTS: dict[str, Callable[[BrokerWorld], bool]] = {
    "while it starts": lambda world: world.is_starting,
    "between append and sync": has_unsynced,
    "while a batch is rewritten": rewrites,
    "while it writes a metadata snapshot": writes_snapshot,
    "between a topic's deletion and that of its files": removes_topic,
    "while the disk is full": is_full,
}


class TopicModel:
    def __init__(self, name: str, configs: dict[str, str], *, idempotent: bool = False) -> None:
        self.name = name
        self.configs = configs
        self.idempotent = idempotent
        self.survives_power_loss = configs.get("flush.messages") == "1"
        self.sent: dict[bytes, int] = {}  # with the number of power losses until then
        self.told: dict[int, bytes] = {}
        self.in_doubt: dict[int, bytes] = {}  # promised, but the power failed
        self.power_losses = 0

    def power_lost(self) -> None:
        self.power_losses += 1
        if not self.survives_power_loss:
            self.in_doubt.update(self.told)
            self.told.clear()

    def tell(self, offset: int, value: bytes) -> None:
        known = self.told.get(offset)
        assert known in (None, value), (
            f"{self.name}: offset {offset} was {known and known[:20]!r} and is {value[:20]!r}"
        )
        self.told[offset] = value

    def check(self, told_before: dict[int, bytes], found: dict[int, bytes]) -> None:
        """`found` was read after everything in `told_before` was promised."""
        for offset, value in told_before.items():
            assert found.get(offset) == value, (
                f"{self.name}: offset {offset} of {len(found)} was told to be {value[:20]!r}, "
                f"it is {found.get(offset, b'nothing')[:20]!r}"
            )
        for offset, value in found.items():
            assert value in self.sent, f"{self.name}: no producer sent {value[:20]!r} at {offset}"
            doubtful = self.in_doubt.pop(offset, value)
            if doubtful == value:
                self.tell(offset, value)
            else:  # lost, and the offset given to a later record
                assert self.sent[value] == self.power_losses, f"{self.name}: {value[:20]!r} at {offset} is a ghost"
        self.in_doubt.clear()
        first = min(found, default=0)  # what was never synced may be lost from the beginning, too
        assert first == 0 or not self.survives_power_loss, f"{self.name} begins at {first}"
        assert sorted(found) == list(range(first, first + len(found))), f"{self.name}: offsets are missing"
        order: dict[bytes, int] = {}
        for offset in sorted(found):
            producer, number, _ = found[offset].split(b":", 2)
            last = order.get(producer, -1)
            assert int(number) > last, f"{self.name}: {found[offset][:20]!r} at {offset} comes after {last}"
            if self.idempotent:
                assert int(number) == last + 1, f"{self.name}: {producer!r} misses {last + 1}"
            order[producer] = int(number)


class NodeStory:
    def __init__(self, loop: SimulatedLoop, seed: int | str, *, rounds: int) -> None:
        self.loop = loop
        self.chance = random.Random(f"{seed}/story")
        self.world = BrokerWorld(
            loop,
            seed,
            properties={
                "log.dirs": ",".join(node_moves.DIRECTORIES),
                "log.flush.offset.checkpoint.interval.ms": self.chance.choice(("300", "2000", "60000")),
                "log.retention.check.interval.ms": "700",
                "metadata.log.max.record.bytes.between.snapshots": self.chance.choice(("400", "20971520")),
                "log.roll.ms": self.chance.choice(("300", "5000")),
                "log.index.interval.bytes": self.chance.choice(("100", "4096")),
            },
        )
        self.rounds = rounds
        self.topics = [
            TopicModel("flushed", {"flush.messages": "1"}),
            TopicModel("plain", {}),
            TopicModel("exact", {"flush.messages": "1"}, idempotent=True),
            TopicModel("rewritten", {"flush.messages": "1", "compression.type": "gzip"}, idempotent=True),
        ]
        self.exists: dict[str, bool] = {}  # topics whose creation or deletion was acknowledged
        self.producer_ids: set[int] = set()
        self.positions: dict[str, int] = {}
        self.once: dict[tuple[str, str], int] = {}
        # For each idempotent producer: the next sequence, its id, the batch that is not acknowledged yet.
        self.exact: dict[tuple[str, str], list[Any]] = {}
        self.events: Counter[str] = Counter()
        self.moments: Moments[BrokerWorld] = Moments(MOMENTS)
        self.next_end = "kill"
        self.world.on_killed = lambda: self.moments.strike(self.next_end, self.world)
        self.world.disk.on_failure = lambda fault: self.moments.strike(fault, self.world)
        self.moves = node_moves.ReplicaMoves(self.chance, [topic.name for topic in self.topics], self.events)
        self.over = False
        self.disk_is_full = False
        self.is_up = asyncio.Event()

    async def run(self) -> None:
        await self.world.start()
        await self.create_topics()
        self.is_up.set()
        async with asyncio.TaskGroup() as tasks:
            for topic in self.topics:
                for name in ("a", "b"):
                    work = self.produce_exactly if topic.idempotent else self.produce_once
                    tasks.create_task(self.persist(lambda c, t=topic, n=name, p=work: p(c, t, n)))  # type: ignore[misc]
                tasks.create_task(self.persist(lambda c, t=topic: self.consume(c, t)))  # type: ignore[misc]
            tasks.create_task(self.persist(self.administrate))
            tasks.create_task(self.persist(self.moves.go_on))
            for _ in range(self.rounds):
                await asyncio.sleep(self.chance.choice((0.01, 0.2, 0.8)) * self.chance.random())
                await self.misfortune()
                await self.verify()
            self.over = True
            self.is_up.set()
        await self.verify()
        await self.world.stop()
        assert not self.world.failures, self.world.failures

    async def create_topics(self) -> None:
        async with self.world.client() as client:
            for topic in self.topics:
                assert await client.create_topic(topic.name, topic.configs) is ErrorCode.NONE

    # -- Faults of the node.

    async def misfortune(self) -> None:
        kind = self.chance.choice(
            (
                *("process crashes", "process crashes", "crashes within a step", "crashes within a step"),
                *("power losses", "power losses", "clean stops", "clean stops, then power losses"),
                *("full disks", "cold reads", "nothing"),
            )
        )
        self.events[kind] += 1
        if kind == "nothing":
            return
        if kind == "cold reads":
            share = self.chance.random()
            self.world.disk.cold = lambda *_: self.chance.random() < share
            return
        if kind == "full disks":
            await self.full_disk()
            return
        if kind == "crashes within a step":
            await self.killed_at_a_change()
            return
        self.is_up.clear()
        if kind == "process crashes":
            self.moments.strike("kill", self.world)
            self.world.crash()
        elif kind == "power losses":
            self.moments.strike("power loss", self.world)
            self.world.power_loss()
            self.power_lost()
        else:
            self.moments.strike("stop", self.world)
            await self.world.stop()
            if kind != "clean stops":
                self.world.power_loss()
                for topic in self.topics:
                    topic.power_losses += 1  # nothing may be lost; later records count as sent after it
        await asyncio.sleep(self.chance.random())
        await self.start()
        self.is_up.set()

    async def killed_at_a_change(self) -> None:
        """Between two writes, renames or syncs of anything the node does: serving, recovering, creating topics."""
        assert self.world.files is not None
        self.next_end = self.chance.choice(("kill", "power loss"))
        self.world.files.die_after(self.chance.choice((0, self.chance.randrange(10), self.chance.randrange(200))))
        try:
            async with asyncio.timeout(5):
                await self.world.killed.wait()
        except TimeoutError:
            self.events["not killed in time"] += 1
        self.is_up.clear()
        while True:
            if self.next_end == "kill":
                self.world.crash()
            else:
                self.world.power_loss()
                self.power_lost()
            self.next_end = self.chance.choice(("kill", "power loss"))
            if await self.start(die_after=self.chance.choice((None, None, self.chance.randrange(40)))):
                break
            self.events["killed while starting"] += 1
        assert self.world.files is not None
        self.world.files.die_after(1 << 60)
        self.is_up.set()

    def power_lost(self) -> None:
        for topic in self.topics:
            topic.power_lost()

    async def full_disk(self) -> None:
        """For a while, and sometimes with a crash in the middle of it."""
        disk = self.world.disk
        block_size = self.chance.choice((1, 1, 4096))
        disk.fill(leave=self.chance.choice((0, 30, 200, 3000)), block_size=block_size)
        self.events["disks full by blocks"] += block_size > 1
        self.disk_is_full = True
        await asyncio.sleep(self.chance.choice((0.05, 0.5, 4.0)) * self.chance.random())
        if self.chance.random() < 0.3:
            self.is_up.clear()
            self.moments.strike("kill", self.world)
            self.world.crash()
            try:
                await self.start()
            except (KafkaError, OSError):
                self.events["refused to start on a full disk"] += 1
                self.world.crash()
                disk.heal()
                await self.start()
            self.is_up.set()
        disk.heal()
        self.disk_is_full = False

    async def start(self, die_after: int | None = None) -> bool:
        is_ready = await self.world.start(die_after=die_after)
        assert not self.world.failures, self.world.failures
        return is_ready

    # -- Clients.

    async def persist(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Connect and work, again and again, whatever happens to the broker."""
        while not self.over:
            try:
                async with self.world.client(patience=PATIENCE_S) as client:
                    while not self.over:
                        await work(client)
            except Lost:
                self.events["connections lost"] += 1
                await asyncio.sleep(0.02)
                await self.is_up.wait()

    def batch(self, topic: TopicModel, producer: str, first: int, count: int, **options: Any) -> Any:
        padding = "x" * self.chance.choice((0, 10, 300, 3000))
        values = [f"{producer}:{number}:{padding}".encode() for number in range(first, first + count)]
        for value in values:
            topic.sent[value] = topic.power_losses
        codec = self.chance.choice(list(Codec))
        return values, requests.batch(*values, timestamp=self.world.now_ms, codec=codec, **options)

    async def produce_once(self, client: Client, topic: TopicModel, producer: str) -> None:
        """Never repeats: an unanswered record is stored once or not at all."""
        count = self.chance.randint(1, 3)
        first = self.once.get((topic.name, producer), 0)
        self.once[topic.name, producer] = first + count
        values, data = self.batch(topic, producer, first, count)
        power_losses = topic.power_losses
        answer = await client.produce(topic.name, data, acks=self.chance.choice((1, -1)), timeout_ms=2000)
        await self.acknowledged(topic, values, answer, power_losses)

    async def produce_exactly(self, client: Client, topic: TopicModel, producer: str) -> None:
        state = self.exact.setdefault((topic.name, producer), [0, None, None])
        sequence, producer_id, pending = state
        if producer_id is None:
            state[1] = producer_id = await self.new_producer_id(client)
            if producer_id is None:
                return
        if pending is None:
            state[2] = pending = self.batch(
                topic,
                producer,
                sequence,
                self.chance.randint(1, 3),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
        values, data = pending
        power_losses = topic.power_losses
        answer = await client.produce(topic.name, data, timeout_ms=2000)
        if await self.acknowledged(topic, values, answer, power_losses):
            state[0], state[2] = sequence + len(values), None

    async def acknowledged(self, topic: TopicModel, values: list[bytes], answer: Any, power_losses: int) -> bool:
        """`power_losses` is the number of power losses when the request was sent."""
        code = ErrorCode(answer.error_code)
        self.events[f"produce: {code.name}"] += 1
        if code is not ErrorCode.NONE:
            assert code in TRANSIENT, answer
            await asyncio.sleep(0.2)
            return False
        for offset, value in enumerate(values, answer.base_offset):
            if topic.survives_power_loss or power_losses == topic.power_losses:
                topic.tell(offset, value)
            # else the answer was under way when the power failed
        await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.2)))
        return True

    async def consume(self, client: Client, topic: TopicModel) -> None:
        """Tail the topic; everything that is read counts as promised."""
        positions = self.positions
        offset = positions.get(topic.name, 0)
        before = topic.power_losses
        answer = await client.fetch(
            topic.name,
            offset,
            max_wait_ms=self.chance.choice((0, 100, 1000)),
            min_bytes=self.chance.choice((1, 1000)),
            partition_max_bytes=self.chance.choice((1, 2000, 1 << 20)),
        )
        code = ErrorCode(answer.error_code)
        self.events[f"fetch: {code.name}"] += 1
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            assert topic.power_losses and not topic.survives_power_loss
            positions[topic.name] = await client.earliest(topic.name)
            return
        if code is not ErrorCode.NONE:
            assert code in TRANSIENT, answer
            await asyncio.sleep(0.02)
            return
        for record in records_checked(answer.records):
            if record.offset >= offset and before == topic.power_losses:
                assert record.value is not None
                if topic.in_doubt.get(record.offset) in (None, record.value):
                    topic.tell(record.offset, record.value)
                positions[topic.name] = record.offset + 1

    async def administrate(self, client: Client) -> None:
        await asyncio.sleep(self.chance.random())
        if self.chance.random() < 0.3:
            await self.new_producer_id(client)
        present = [name for name, there in self.exists.items() if there]
        if present and self.chance.random() < 0.5:
            name = self.chance.choice(present)
            del self.exists[name]
            code = await client.delete_topic(name)
            if code is ErrorCode.NONE:
                self.exists[name] = False
        else:
            name = f"topic-{len(self.exists)}-{self.chance.randrange(10**6)}"
            code = await client.create_topic(name, partitions=self.chance.randint(1, 3))
            if code is ErrorCode.NONE:
                self.exists[name] = True
                answer = await client.produce(name, requests.batch("x", timestamp=self.world.now_ms), timeout_ms=1000)
                if answer.error_code:
                    assert answer.error_code in TRANSIENT and self.disk_was_full, answer
        self.events[f"topics: {code.name}"] += 1
        assert code is ErrorCode.NONE or code in TRANSIENT, code

    @property
    def disk_was_full(self) -> bool:
        return self.disk_is_full or bool(self.events["full disks"])

    async def new_producer_id(self, client: Client) -> int | None:
        given = await client.producer_id()
        if given is not None:
            assert given not in self.producer_ids, f"producer id {given} was given twice"
            self.producer_ids.add(given)
        return given

    # -- Checks.

    async def verify(self) -> None:
        await self.is_up.wait()
        while True:
            told = {topic.name: dict(topic.told) for topic in self.topics}
            exists = dict(self.exists)
            try:
                async with self.world.client() as client:
                    for topic in self.topics:
                        first = 0 if topic.survives_power_loss else await client.earliest(topic.name)
                        read = await client.read_all(topic.name, first)
                        found = {record.offset: record.value for record in read}
                        topic.check(told[topic.name], found)  # type: ignore[arg-type]
                    present = await client.topics()
                    for name, there in exists.items():
                        if self.exists.get(name) == there:  # and it has not changed meanwhile
                            assert (name in present) == there, f"{name} should{'' if there else ' not'} be there"
                    return
            except Lost:
                self.events["verifications repeated"] += 1


def play(seed: int, rounds: int = ROUNDS) -> StoryResult:
    return play_on_loop(seed, lambda loop: NodeStory(loop, seed, rounds=rounds), interleaves=interleaves(seed))
