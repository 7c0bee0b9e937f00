"""Threads of the simulator pause between operations on files, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.io.threads import SharedLock
from penstock.simulator.twins import loop as simulated_loop
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from penstock.simulator.twins.mount import Mount, ProcessKilled

WRITES = 20
HOST = "machine"


def write_all(mount: Mount, told: list[str], lock: SharedLock | None = None) -> Callable[[], int]:
    def work() -> int:
        file = mount.open("/file", create=True)
        try:
            if lock is not None:
                lock.__enter__()
            for number in range(WRITES):
                file.pwrite(b"x", number)
                told.append("wrote")
            if lock is not None:
                lock.__exit__()
        finally:
            file.close()
            told.append("closed")
        return WRITES

    return work


def tell(seed: int, program: Callable[[SimulatedLoop], Coroutine[Any, Any, Any]]) -> Any:
    async def story(loop: SimulatedLoop) -> Any:
        loop.interleaves = True
        return await loop.start(HOST, program(loop))

    return simulate(story, seed)


def turns(seed: int, lock: SharedLock | None = None) -> list[str]:
    """What a thread and the loop did, in order."""
    told: list[str] = []

    async def program(loop: SimulatedLoop) -> None:
        work = loop.run_in_executor(None, write_all(Mount(SimulatedDisk()), told, lock))
        while not work.done():
            told.append("loop")
            await asyncio.sleep(0.000_1)
        assert work.result() == WRITES

    tell(seed, program)
    return told


def test_the_loop_goes_on_between_two_writes() -> None:
    told = turns(1)
    first = told.index("wrote")
    assert "loop" in told[first : told.index("closed")]
    assert told.count("wrote") == WRITES
    assert turns(1) == told  # the same for the same seed
    assert turns(2) != told


def test_nobody_pauses_who_holds_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_loop, "PAUSE_RATE", 1.0)
    told = turns(1, SharedLock())
    first = told.index("wrote")
    assert told[first : first + WRITES] == ["wrote"] * WRITES


def test_an_error_is_for_whoever_waits() -> None:
    async def program(loop: SimulatedLoop) -> None:
        with pytest.raises(FileNotFoundError):
            await loop.run_in_executor(None, lambda: Mount(SimulatedDisk()).open("/missing"))

    tell(1, program)


def test_a_thread_dies_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_loop, "PAUSE_RATE", 1.0)
    disk = SimulatedDisk()
    told: list[str] = []
    errors: list[BaseException] = []

    async def program(loop: SimulatedLoop) -> None:
        def work() -> None:
            mount = Mount(disk)
            try:
                write_all(mount, told)()
            except BaseException as error:
                errors.append(error)
                mount.remove("/file")  # the dead clean up nothing
                raise

        await loop.run_in_executor(None, work)

    async def story(loop: SimulatedLoop) -> None:
        loop.interleaves = True
        running = loop.start(HOST, program(loop))
        await asyncio.sleep(0.05)
        loop.kill(HOST)
        written = told.count("wrote")
        assert 0 < written < WRITES
        await asyncio.sleep(10)
        assert not running.done()
        assert told == ["wrote"] * written + ["closed"]
        assert disk.exists("/file")
        assert [type(error) for error in errors] == [ProcessKilled]

    simulate(story)
