"""The event loop on virtual time: asyncio as usual, only quicker and always the same."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import uvloop

from penstock.simulator.twins.clock import SimulatedClock
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.loop import Deadlock, SimulatedLoop, simulate
from penstock.simulator.twins.mount import Mount


def test_time_passes_only_in_waiting() -> None:
    async def program(loop: SimulatedLoop) -> float:
        begin = loop.time()
        await asyncio.gather(*(asyncio.sleep(delay) for delay in (3600, 86_400 * 7, 5)))
        return loop.time() - begin

    started = time.monotonic()
    assert simulate(program) == pytest.approx(86_400 * 7)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, SimulatedLoop])
def test_a_timer_that_is_due_at_once_knows_no_time(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Brokers that ask for it would fail on uvloop only."""
    loop = new_loop()
    try:
        at = loop.time() + 10
        assert loop.call_at(at, print).when() == pytest.approx(at)
        with pytest.raises(AttributeError):
            loop.call_at(loop.time() - 1, print).when()
    finally:
        loop.close()


def test_timers_fire_in_order_and_at_their_time() -> None:
    async def program(loop: SimulatedLoop) -> list[tuple[float, str]]:
        fired: list[tuple[float, str]] = []
        begin = loop.time()

        def fire(name: str) -> None:
            fired.append((round(loop.time() - begin, 9), name))

        for delay in (0.3, 0.1, 0.2):
            loop.call_later(delay, fire, f"{delay}")
        cancelled = loop.call_later(0.15, lambda: fired.append((0, "cancelled")))
        loop.call_soon(cancelled.cancel)
        await asyncio.sleep(1)
        return fired

    assert simulate(program) == [(0.1, "0.1"), (0.2, "0.2"), (0.3, "0.3")]


def test_time_outs_and_task_groups_work() -> None:
    async def program(loop: SimulatedLoop) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await loop.create_future()
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1000))
                group.create_task(_fail_after(5))
        return f"{loop.time() - 1000:.3f}"

    assert simulate(program) == "35.000"


async def _fail_after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise RuntimeError("on purpose")


def test_waiting_for_nothing_is_an_error_and_not_a_hang() -> None:
    loop = SimulatedLoop()
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_executor_work_is_done_later_and_once() -> None:
    async def program(loop: SimulatedLoop) -> None:
        begin = loop.time()
        done: list[int] = []
        future = loop.run_in_executor(None, done.append, 1)
        assert done == []
        await future
        assert done == [1]
        assert loop.time() > begin
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        assert await asyncio.to_thread(lambda: "thread") == "thread"

    simulate(program)


def test_one_worker_keeps_the_order_and_several_do_not() -> None:
    async def order(loop: SimulatedLoop, workers: int) -> list[int]:
        done: list[int] = []
        with concurrent.futures.ThreadPoolExecutor(workers) as executor:
            await asyncio.gather(*(loop.run_in_executor(executor, done.append, number) for number in range(20)))
        return done

    assert simulate(lambda loop: order(loop, 1)) == list(range(20))
    assert simulate(lambda loop: order(loop, 4)) != list(range(20))


def test_a_slow_disk_is_a_slow_executor() -> None:
    async def program(loop: SimulatedLoop) -> float:
        disk = SimulatedDisk()
        file = disk.open("a", create=True)
        loop.executor_delay = lambda: 2.5
        begin = loop.time()
        await loop.run_in_executor(None, file.sync)
        return loop.time() - begin

    assert simulate(program) == pytest.approx(2.5)


def test_a_clock_runs_with_the_loop() -> None:
    async def program(loop: SimulatedLoop) -> int:
        clock = SimulatedClock(1_000_000, elapsed=loop.time)
        await asyncio.sleep(12.5)
        return clock.now_ms()

    assert simulate(program) == 1_012_500


def test_a_killed_process_does_nothing_more() -> None:
    """Not a callback, not a timer, not a finally block; and it never keeps the simulation from ending."""
    written: list[str] = []
    disk = SimulatedDisk()

    async def node(loop: SimulatedLoop) -> None:
        files = Mount(disk)
        loop.call_later(20, written.append, "a timer")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1000))
                while True:
                    await asyncio.sleep(1)
                    written.append("tick")
        finally:
            written.append("finally")
            files.open("clean_shutdown", create=True)

    async def program(loop: SimulatedLoop) -> None:
        loop.start("a", node(loop))
        await asyncio.sleep(3.5)
        disk.crash()
        loop.kill("a")
        assert written == ["tick"] * 3
        await asyncio.sleep(100)
        assert written == ["tick"] * 3
        loop.start("a", node(loop))
        await asyncio.sleep(1.5)
        assert written == ["tick"] * 4
        disk.crash()
        loop.kill("a")

    simulate(program)
    assert not disk.exists("clean_shutdown")


def test_one_program_a_host() -> None:
    async def program(loop: SimulatedLoop) -> None:
        first = loop.start("a", asyncio.sleep(5))
        with pytest.raises(RuntimeError):
            loop.start("a", asyncio.sleep(5))
        await first
        await loop.start("a", asyncio.sleep(5))

    simulate(program)


TRACED = """
import asyncio, sys
from penstock.simulator.twins.loop import simulate

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)

async def worker(loop, name):
    reader, writer = await asyncio.open_connection("server", 9092)
    for number in range(20):
        writer.write(name.encode() * 300)
        await reader.readexactly(300 * len(name))
        await loop.run_in_executor(None, len, name)
        loop.trace.add("echo", name, number)
        if name == "c" and number == 10:
            raise RuntimeError("cancels the others, in the order of a set")
    writer.close()

async def serve(loop):
    server = await loop.create_server(Echo, "server", 9092)
    await server.serve_forever()

async def program(loop):
    loop.start("server", serve(loop))
    await asyncio.sleep(1)
    try:
        async with asyncio.TaskGroup() as group:
            for name in {"a", "b", "c", "d"} if sys.argv[2] == "careless" else ["a", "b", "c", "d"]:
                group.create_task(worker(loop, name))
    except* RuntimeError:
        pass
    await asyncio.wait([asyncio.ensure_future(asyncio.sleep(n % 3)) for n in range(9)])
    return loop.trace

trace = simulate(program, int(sys.argv[1]))
print(trace.digest(), trace.count)
"""


def traced(seed: int, hash_seed: int, how: str = "careful") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", TRACED, str(seed), how]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    first = traced(7, hash_seed=0)
    assert traced(7, hash_seed=1) == traced(7, hash_seed=2) == first
    assert traced(8, hash_seed=0) != first


def test_the_trace_tells_when_a_program_depends_on_hashes() -> None:
    assert len({traced(7, hash_seed, "careless") for hash_seed in range(4)}) > 1


def test_random_programs_repeat_in_one_interpreter() -> None:
    async def program(loop: SimulatedLoop) -> str:
        chance = random.Random(loop.seed)

        async def task(depth: int) -> None:
            await asyncio.sleep(chance.random())
            loop.trace.add("task", depth)
            if depth:
                await asyncio.gather(*(task(depth - 1) for _ in range(chance.randrange(4))))

        await asyncio.gather(*(task(4) for _ in range(5)))
        return loop.trace.digest()

    assert simulate(program, 3) == simulate(program, 3)
    assert simulate(program, 3) != simulate(program, 4)
