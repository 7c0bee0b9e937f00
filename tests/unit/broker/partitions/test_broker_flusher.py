"""Group commit: one flush at a time, every waiter answered, and which failures are final."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.broker.partitions.flusher import NO_ROOM_RETRY_S, Flusher
from penstock.broker.partitions.replica import Replica
from penstock.log.log import NoRoom
from penstock.simulator.twins.loop import SimulatedLoop, simulate


class FakeLog:
    """Its end moves when something is appended; a flush reports the end at its beginning, or fails."""

    def __init__(self) -> None:
        self.end = 0
        self.flushes = 0
        self.errors: list[Exception] = []

    def flush(self) -> int:
        self.flushes += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.end


class FakeReplica:
    def __init__(self) -> None:
        self.log = FakeLog()
        self.is_offline = False
        self.topic_partition = "t-0"
        self.flushed_to = 0
        self.on_flushed: Callable[[], None] = lambda: None

    def flushed(self, offset: int) -> None:
        self.flushed_to = offset
        self.on_flushed()


class World:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.replica = FakeReplica()
        self.fatal: list[str] = []
        self.flusher = Flusher(loop, lambda: None, lambda replica, reason: self.fatal.append(reason))

    def append(self) -> None:
        self.replica.log.end += 1
        self.flusher.request(cast(Replica, self.replica))

    def flush(self) -> asyncio.Future[None]:
        return self.flusher.flush(cast(Replica, self.replica))


def run(story: Callable[[World], Any]) -> None:
    async def program(loop: SimulatedLoop) -> None:
        await story(World(loop))

    simulate(program)


def test_what_is_asked_for_during_a_flush_shares_the_next() -> None:
    async def story(world: World) -> None:
        for _ in range(10):
            world.append()
        await asyncio.sleep(1)
        assert world.replica.flushed_to == 10
        assert world.replica.log.flushes == 2

    run(story)


def test_what_an_acknowledgement_lets_in_is_flushed_too() -> None:
    """`flushed` answers producers, whose connections then handle the next request, all before it returns."""

    async def story(world: World) -> None:
        left = 5

        def let_in() -> None:
            nonlocal left
            if left:
                left -= 1
                world.append()

        world.replica.on_flushed = let_in
        world.append()
        await asyncio.sleep(1)
        assert world.replica.flushed_to == 6

    run(story)


def test_whoever_waits_waits_for_what_was_there_when_he_came() -> None:
    async def story(world: World) -> None:
        world.append()
        first = world.flush()
        world.replica.log.end = 7
        second = world.flush()
        await first
        await second
        assert world.replica.flushed_to == 7

    run(story)


def test_a_full_disk_is_tried_again() -> None:
    async def story(world: World) -> None:
        world.replica.log.errors = [NoRoom("full"), NoRoom("still full")]
        waiter = world.flush()
        world.append()
        await asyncio.sleep(1.5 * NO_ROOM_RETRY_S)
        assert not waiter.done()
        await waiter
        await asyncio.sleep(1)
        assert world.replica.flushed_to == 1
        assert not world.fatal

    run(story)


def test_once_it_is_closing_a_full_disk_is_a_failure() -> None:
    async def story(world: World) -> None:
        world.flusher.close()
        world.replica.log.errors = [NoRoom("full")]
        with pytest.raises(NoRoom):
            await world.flush()
        assert len(world.fatal) == 1

    run(story)


def test_any_other_failure_is_the_end_and_everybody_hears_of_it() -> None:
    async def story(world: World) -> None:
        world.replica.log.errors = [OSError("gone")]
        first = world.flush()
        second = world.flush()
        for waiter in (first, second):
            with pytest.raises(OSError, match="gone"):
                await waiter
        assert len(world.fatal) == 1
        assert world.replica.flushed_to == 0

    run(story)


def test_a_deleted_partition_may_fail() -> None:
    async def story(world: World) -> None:
        world.replica.log.errors = [OSError("no such file")]
        waiter = world.flush()
        world.replica.is_offline = True
        await waiter
        assert not world.fatal

    run(story)
