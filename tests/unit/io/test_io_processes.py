"""Child processes, real and simulated."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.io.processes import RealProcesses
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from penstock.simulator.twins.processes import SimulatedProcesses
from waiting import wait_until

THIS = "child_for_tests"


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be run as a child; returns a directory for it to write into."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / f"{THIS}.py").write_text(
        textwrap.dedent(
            """
            import os, time

            def main(files, arguments):
                what, directory = arguments
                def write(name, text):
                    file = files.open(f"{directory}/{name}", create=True)
                    file.pwrite(text.encode(), 0)
                    file.close()
                if what == "write":
                    for number in range(5):
                        write(f"{number}", f"{os.getpriority(os.PRIO_PROCESS, 0)}")
                    return 7
                if what == "fail":
                    raise RuntimeError("on purpose")
                write("pid.tmp", f"{os.getpid()}")
                files.rename(f"{directory}/pid.tmp", f"{directory}/pid")
                while True:
                    time.sleep(60)
            """
        )
    )
    monkeypatch.setenv("PYTHONPATH", str(modules), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(modules))
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


def gone(pid: int) -> bool:
    """Dead, or a zombie that its new parent has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_real_child_works_at_low_priority_and_returns_its_code(child: Path) -> None:
    assert asyncio.run(RealProcesses().run(THIS, ["write", str(child)])) == 7
    assert int((child / "4").read_text()) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)


def test_a_real_child_that_raises_exits_with_one(child: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(RealProcesses().run(THIS, ["fail", str(child)])) == 1
    assert "on purpose" in capfd.readouterr().err


def test_cancelling_kills_the_real_child(child: Path) -> None:
    async def program() -> int:
        running = asyncio.create_task(RealProcesses().run(THIS, ["wait", str(child)]))
        await asyncio.to_thread(wait_until, (child / "pid").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return int((child / "pid").read_text())

    assert gone(asyncio.run(program()))


def test_a_real_child_dies_with_its_parent(child: Path) -> None:
    program = f"""
import asyncio
from penstock.io.processes import RealProcesses
asyncio.run(RealProcesses().run({THIS!r}, ["wait", {str(child)!r}]))
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    wait_until((child / "pid").exists)
    pid = int((child / "pid").read_text())
    assert not gone(pid)
    parent.kill()
    parent.wait()
    wait_until(lambda: gone(pid))


def test_a_simulated_child_works_on_the_simulated_disk(child: Path) -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data")

    async def program(loop: SimulatedLoop) -> int:
        return await SimulatedProcesses(disk, random.Random(0)).run(THIS, ["write", "/data"])

    assert simulate(program) == 7
    assert disk.list("/data") == ["0", "1", "2", "3", "4"]
    assert disk.open_paths() == []


@pytest.mark.parametrize("how", ["cancelled", "killed"])
def test_simulated_children_die_at_every_point(child: Path, how: str) -> None:
    seen: set[int] = set()
    for seed in range(60):
        disk = SimulatedDisk()
        disk.make_directories("/data")
        processes = SimulatedProcesses(disk, random.Random(seed), death_rate=1.0 if how == "killed" else 0.0)

        async def program(loop: SimulatedLoop, processes: SimulatedProcesses = processes) -> None:
            running = asyncio.ensure_future(processes.run(THIS, ["write", "/data"]))
            if how == "killed":
                assert await running in (-9, 7)
                return
            await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

        simulate(program, seed)
        seen.add(len(disk.list("/data")))
    assert seen == {0, 1, 2, 3, 4, 5}
