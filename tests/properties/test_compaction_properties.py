"""Compaction against a model: whatever is written, whenever the power fails or a process dies, a reader of the whole
log ends up with the last value of every key, and with nothing that was deleted."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_world import DAY_MS, DIRECTORY, PARTITION, World
from penstock.log import compaction
from penstock.log.checkpoints import read_offset_checkpoint
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.mount import Mount, ProcessKilled
from property_examples import examples

LEFTOVERS = (".cleaned", ".swap", ".deleted", ".tmp")


class Model:
    """Everything that was ever written and committed, by offset."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history: dict[int, tuple[bytes, bytes | None]] = {}
        self.open: dict[int, dict[int, tuple[bytes, bytes | None]]] = {}
        self.sequences: dict[int, int] = {}

    def put(self, pairs: Sequence[tuple[bytes, bytes | None]], codec: int = 0) -> None:
        first = self.world.put(*pairs, codec=codec)
        self.history.update(enumerate(pairs, first))

    def put_in_transaction(self, producer_id: int, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        sequence = self.sequences.get(producer_id, 0)
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        first = self.world.put(*pairs, **options)
        self.sequences[producer_id] = sequence + len(pairs)
        self.open.setdefault(producer_id, {}).update(enumerate(pairs, first))

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        if producer_id in self.open:
            self.world.mark(producer_id, committed=committed)
            written = self.open.pop(producer_id)
            if committed:
                self.history.update(written)

    def check(self) -> None:
        contents = self.world.committed()
        offsets = [offset for offset, _, _ in contents]
        assert offsets == sorted(set(offsets))
        for offset, key, value in contents:
            assert self.history.get(offset) == (key, value), f"offset {offset} holds what was never committed there"
        stable = self.world.last_stable_offset
        assert stable == min((min(written) for written in self.open.values()), default=self.world.log.log_end_offset)
        last_in_log = {key: offset for offset, key, _ in contents}
        last_written = {key: offset for offset, (key, _) in sorted(self.history.items()) if offset < stable}
        for key, offset in last_written.items():
            found = last_in_log.get(key)
            if self.history[offset][1] is None and found is None:
                continue
            assert found == offset, f"key {key!r}: the last record found is at {found}, not at {offset}"

    def check_cleaned(self) -> None:
        """Below the cleaner's checkpoint every key is there once, and nothing is left lying about."""
        self.check()
        checkpoint = read_offset_checkpoint(self.world.disk, "/data/cleaner-offset-checkpoint").get(PARTITION, 0)
        keys = [key for offset, key, _ in self.world.committed() if offset < checkpoint]
        assert len(keys) == len(set(keys))
        assert not [name for name in self.world.names() if name.endswith(LEFTOVERS)]

    def check_producers(self) -> None:
        """What they sent last is still known."""
        for producer_id, next_sequence in self.sequences.items():
            entry = self.world.log.producers.get(producer_id)
            assert entry is not None
            assert entry.last_sequence == next_sequence - 1


def small_world(seed: int = 0) -> World:
    return World(seed, segment_bytes=700, index_interval_bytes=100, delete_retention_ms=DAY_MS)


keys = st.sampled_from([b"a", b"b", b"c", b"d", b"a key that is longer than sixteen bytes"])
pairs = st.lists(st.tuples(keys, st.none() | st.binary(max_size=40)), min_size=1, max_size=5)
producer_ids = st.integers(1, 3)
puts = st.tuples(st.just("put"), pairs, st.integers(0, 4))
steps = st.one_of(
    puts,
    puts,
    st.tuples(st.just("put in transaction"), producer_ids, pairs),
    st.tuples(st.just("end transaction"), producer_ids, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("advance"), st.sampled_from([1, DAY_MS // 2, DAY_MS])),
    st.tuples(st.just("clean")),
    st.tuples(st.just("crash"), st.integers(0, 60), st.booleans(), st.integers(0, 2**32)),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(steps, min_size=5, max_size=80), st.integers(0, 2**32))
def test_any_history(history: list[Any], seed: int) -> None:
    world = small_world(seed)
    model = Model(world)
    for step in history:
        take(step, world, model)


@pytest.mark.parametrize("seed", range(12))
def test_long_histories(seed: int) -> None:
    """Hypothesis tells short stories. Some faults take a transaction, its abort, three cleanings and two days."""
    chance = random.Random(seed)
    world = small_world(seed)
    model = Model(world)
    for _ in range(250):
        take(random_step(chance), world, model)


def random_step(chance: random.Random) -> Any:
    pairs = [
        (b"key%d" % chance.randrange(6), None if chance.random() < 0.3 else chance.randbytes(chance.randrange(40)))
        for _ in range(chance.randint(1, 3))
    ]
    producer_id = chance.randint(1, 3)
    return chance.choices(
        [
            ("put", pairs, chance.randrange(5)),
            ("put in transaction", producer_id, pairs),
            ("end transaction", producer_id, chance.random() < 0.4),
            ("roll",),
            ("advance", DAY_MS // 2),
            ("clean",),
            ("crash", chance.randrange(80), chance.random() < 0.5, chance.randrange(2**32)),
        ],
        weights=[20, 20, 25, 15, 5, 12, 3],
    )[0]


def take(step: Any, world: World, model: Model) -> None:
    match step:
        case ("put", pairs, codec):
            model.put(pairs, codec)
        case ("put in transaction", producer_id, pairs):
            model.put_in_transaction(producer_id, pairs)
        case ("end transaction", producer_id, committed):
            model.end_transaction(producer_id, committed=committed)
        case ("roll",):
            world.roll()
        case ("advance", time_ms):
            world.clock.jump(time_ms)
        case ("clean",):
            world.clean_round()
            model.check_cleaned()
        case ("crash", operations, power_fails, chance):
            world.flush()
            die_while_cleaning(world, operations)
            come_back(world, world.log.log_end_offset, random.Random(chance) if power_fails else None)
            model.check_producers()
    model.check()


def die_while_cleaning(world: World, operations: int) -> bool:
    """The broker, started again, dies after so many changes to the disk; false if it had nothing left to do."""
    recovery_point = world.log.recovery_point
    world.disk.crash()
    try:
        world.open(Mount(world.disk, operations=operations), recovery_point=recovery_point)
        world.clean()
    except ProcessKilled:
        return True
    return False


def come_back(world: World, recovery_point: int, power_fails: random.Random | None) -> None:
    if power_fails is None:
        world.disk.crash()
    else:
        world.disk.power_loss(power_fails)
    world.open(recovery_point=recovery_point)


def eventful_world() -> tuple[World, Model]:
    """Three groups to clean, tombstones whose time has come, a transaction that was aborted."""
    world = World(segment_bytes=600, index_interval_bytes=100, delete_retention_ms=DAY_MS)
    model = Model(world)
    for number in range(12):
        model.put([(b"key%d" % (number % 4), b"first"), (b"deleted%d" % (number % 3), b"x" * 20)])
    model.put([(b"deleted0", None), (b"deleted1", None)])
    world.roll()
    world.clean()
    world.clock.jump(2 * DAY_MS)
    for number in range(8):
        model.put([(b"key%d" % (number % 3), b"second"), (b"more%d" % number, b"y" * 30)])
    model.put([(b"deleted2", None)])
    world.roll()
    model.put([(b"key0", b"last")])
    world.flush()
    return world, model


@pytest.mark.parametrize("fate", ["killed", "power 1", "power 2"])
def test_the_broker_dies_at_every_change_it_makes(fate: str) -> None:
    world, model = eventful_world()
    assert world.clean()
    model.check_cleaned()
    finally_there = world.contents()
    for operations in itertools.count():
        world, model = eventful_world()
        flushed = world.log.log_end_offset
        died = die_while_cleaning(world, operations)
        come_back(world, flushed, None if fate == "killed" else random.Random(f"{fate} {operations}"))
        model.check()
        while world.clean():
            model.check_cleaned()
        assert world.contents() == finally_there
        if not died:
            assert operations > 20
            return


class DyingChild:
    """A compaction process that is killed after so many changes to the disk."""

    def __init__(self, disk: SimulatedDisk, operations: int) -> None:
        self._disk = disk
        self._operations = operations
        self.died = False

    async def run(self, module: str, arguments: Sequence[str]) -> int:
        assert module == compaction.__name__
        mount = Mount(self._disk, operations=self._operations)
        try:
            return compaction.main(mount, list(arguments))
        except ProcessKilled:
            self.died = True
            return -signal.SIGKILL
        finally:
            mount.kill()


def test_the_child_dies_at_every_change_it_makes() -> None:
    for operations in itertools.count():
        world, model = eventful_world()
        before = world.contents()
        in_use = {name: world.disk.size(f"{DIRECTORY}/{name}") for name in world.names()}
        child = DyingChild(world.disk, operations)
        processes, world.processes = world.processes, child  # type: ignore[assignment]
        world.open(recovery_point=world.log.recovery_point)
        cleaned = world.clean()
        assert cleaned != child.died
        if cleaned:
            assert operations > 10
            return
        assert world.contents() == before
        assert {name: world.disk.size(f"{DIRECTORY}/{name}") for name in in_use} == in_use
        world.processes = processes
        world.restart()
        assert world.contents() == before
        assert world.clean()
        model.check_cleaned()
