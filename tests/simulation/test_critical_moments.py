"""Critical moments: what is noted when a fault strikes, and faults that wait for one."""

from __future__ import annotations

import asyncio

from penstock.simulator.moments import Moments, Pair
from penstock.simulator.twins.loop import SimulatedLoop, simulate


class Worker:
    def __init__(self) -> None:
        self.is_busy = False


def is_busy(worker: Worker) -> bool:
    return worker.is_busy


def test_a_fault_is_noted_with_the_moments_that_hold() -> None:
    one, other = Worker(), Worker()
    moments = Moments({"busy": is_busy, "idle": lambda worker: not worker.is_busy})
    moments.strike("kill", one)
    assert moments.pairs == {Pair("idle", "kill")}
    other.is_busy = True
    moments.strike("cut", one, other)
    assert moments.pairs == {Pair("idle", "kill"), Pair("idle", "cut"), Pair("busy", "cut")}


def test_a_fault_that_waits_for_a_moment_strikes_before_anything_else_happens() -> None:
    """However short the moment is."""

    async def program(loop: SimulatedLoop) -> None:
        worker = Worker()
        moments = Moments({"busy": is_busy})
        loop.watcher = lambda: moments.look([worker])

        async def work() -> None:
            for _ in range(10):
                await asyncio.sleep(1.0)
                worker.is_busy = True
                await asyncio.sleep(1e-6)
                worker.is_busy = False

        working = asyncio.create_task(work())
        await asyncio.sleep(3.5)
        assert await moments.come("busy", 100.0) is worker
        assert worker.is_busy and not working.done()
        moments.strike("kill", worker)
        assert moments.pairs == {Pair("busy", "kill")}
        await working
        assert await moments.come("busy", 100.0) is None

    simulate(program)


def test_the_loop_tells_whose_code_has_run_and_what_threads_do() -> None:
    async def program(loop: SimulatedLoop) -> None:
        seen: list[tuple[list[str], list[str]]] = []

        async def compute() -> None:
            await loop.run_in_executor(None, sorted, [2, 1])

        loop.watcher = lambda: seen.append((list(loop.touched), loop.at_work("a")))
        await loop.start("a", compute())
        assert seen == [(["a"], ["sorted"])]
        await asyncio.sleep(1)
        assert seen[-1] == (["a"], [])

    simulate(program)
