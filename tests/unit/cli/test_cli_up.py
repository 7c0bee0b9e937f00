"""`penstock up` as a user runs it: a process in the foreground."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.local.properties import merge_properties
from penstock.local.supervisor import GRACE_S
from unit.cli.up_process import StartUp, is_alive, starting_up
from waiting import wait_until


@pytest.fixture
def up(tmp_path: Path) -> Iterator[StartUp]:
    with starting_up(tmp_path / "data", lambda: free_ports(1)[0]) as start:
        yield start


def test_ready_stop_and_start_again(up: StartUp) -> None:
    first = up()
    assert first.ready_line() == f"ready 127.0.0.1:{first.port}\n"
    assert first.answers()
    assert {"server.properties", "server.log", "pid", "data"} <= set(os.listdir(first.data / "node-1"))
    node_pid = first.node_pid
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == (0, "", "")
    assert not is_alive(node_pid)
    meta = (first.data / "node-1" / "data" / "meta.properties").read_text()

    second = up("-o", "num.partitions=2")
    second.ready_line()
    second.process.send_signal(signal.SIGINT)
    assert second.end() == (0, "", "")
    assert (second.data / "node-1" / "data" / "meta.properties").read_text() == meta


def test_a_dead_node_is_started_again(up: StartUp) -> None:
    running = up()
    running.ready_line()
    pid = running.node_pid
    os.kill(pid, signal.SIGKILL)
    assert running.error_line() == "penstock up: node 1 was killed by SIGKILL, starting it again in 0.2 s\n"
    wait_until(running.answers)
    assert running.node_pid != pid


def test_unless_told_otherwise(up: StartUp) -> None:
    running = up("--no-restart")
    running.ready_line()
    os.kill(running.node_pid, signal.SIGKILL)
    status, _, err = running.end()
    assert status == 1
    assert err == "penstock up: node 1 was killed by SIGKILL\npenstock: every node has ended\n"


def is_stopped(pid: int) -> bool:
    """All its threads."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


@pytest.mark.parametrize("stopped", [False, True])
def test_nodes_do_not_outlive_it(up: StartUp, stopped: bool) -> None:
    running = up()
    running.ready_line()
    pid = running.node_pid
    if stopped:
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(pid))  # one that stops after its parent is gone stays
    running.process.kill()
    wait_until(lambda: not is_alive(pid))


def test_a_node_that_was_stopped_ends_with_the_others(up: StartUp) -> None:
    running = up()
    running.ready_line()
    os.kill(running.node_pid, signal.SIGSTOP)
    began = time.monotonic()
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[0] == 0
    assert time.monotonic() - began < GRACE_S / 2


def test_what_cannot_be_is_one_line(up: StartUp, tmp_path: Path) -> None:
    running = up()
    running.ready_line()
    for other, said in (
        (up(), f"data is in use by another penstock up (process {running.process.pid})"),
        (up(data=tmp_path / "other", port=running.port), f"127.0.0.1:{running.port} is in use"),
        (up("--brokers", "3"), f"data is in use by another penstock up (process {running.process.pid})"),
        (up("-o", "num.partitions=none", data=tmp_path / "broken"), "node 1 did not start: "),
        (up(data=Path("/proc/nowhere")), "No such file or directory"),
    ):
        status, out, err = other.end()
        assert (status, out) == (1, "")
        assert said in err
        assert err.startswith("penstock: ")
        assert err.count("\n") == 1
    assert running.answers()


def test_settings_of_the_user_are_kept() -> None:
    text = merge_properties("", {"node.id": "1", "log.dirs": "/old"})
    edited = text + "# mine\nnum.partitions = 7\n"
    merged = merge_properties(edited, {"node.id": "1", "log.dirs": "/new\\x"})
    assert merged == edited.replace("/old", "/new\\\\x")
    assert merge_properties("a=1\na=2\n#a=3\n", {"a": "9"}) == "a=9\n#a=3\n"


def test_a_stop_is_not_put_off_until_ready(tmp_path: Path) -> None:
    never_ready = LocalNode(1, str(tmp_path), host="127.0.0.1", port=free_ports(1)[0])
    asked = iter([False, True])
    with subprocess.Popen(["sleep", "60"]) as process:
        never_ready.process = process
        never_ready.wait_ready(cancelled=lambda: next(asked))
        process.kill()
