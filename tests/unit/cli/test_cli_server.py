"""`penstock server`: what it refuses, and that it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.local.lifeline import Lifeline
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.local.process import NodeFailed
from penstock.testing.nodes import start_node

GOOD = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={data}\n"


def server(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "server", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("node.id=1\n", [], 'Missing required configuration "process.roles"'),
        ("process.roles=broker,controller\nnode.id=one\n", [], "node.id"),
        (GOOD, ["-o", "listeners"], "-o 'listeners' is not KEY=VALUE"),
        (GOOD, ["-o", "num.partitions=0"], "num.partitions"),
        (GOOD, ["-o", "authorizer.class.name=x"], "authorizer.class.name"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, text: str, options: list[str], said: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text.format(port=free_ports(1)[0], data=tmp_path / "data"))
    result = server(str(file), *options)
    assert result.returncode == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    result = server(str(tmp_path / "none.properties"))
    assert result.returncode == 1
    assert result.stderr == f"penstock server: {tmp_path}/none.properties: No such file or directory\n"


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with start_node(tmp_path / "first") as first:
        second = LocalNode(2, str(tmp_path / "second"), host=first.host, port=first.port)
        second.start()
        try:
            assert second.process is not None
            assert second.process.wait(30) == 1
        finally:
            second.kill()
        words = second.last_words()
        assert str(first.port) in words
        assert "Traceback" not in second.log_text()


def test_a_data_directory_in_use_is_said(tmp_path: Path) -> None:
    with start_node(tmp_path / "first") as first:
        file = tmp_path / "server.properties"
        file.write_text(GOOD.format(port=free_ports(1)[0], data=first.data_directory))
        result = server(str(file))
        assert result.returncode == 1
        assert first.data_directory in result.stderr
        assert "Traceback" not in result.stderr


def test_a_node_goes_with_its_parent(tmp_path: Path) -> None:
    """The parent's end of the lifeline closes, as it does when the parent is killed."""
    file = tmp_path / "server.properties"
    port = free_ports(1)[0]
    file.write_text(GOOD.format(port=port, data=tmp_path / "data"))
    lifeline = Lifeline()
    command = [sys.executable, "-m", "penstock", "server", str(file), "--lifeline", str(lifeline.child_fd)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=(lifeline.child_fd,), stdout=log, stderr=log)
    try:
        lifeline.handed_over()
        node = LocalNode(1, str(tmp_path), host="127.0.0.1", port=port)
        node.process = process
        node.wait_ready()
        lifeline.cut()
        assert process.wait(30) == 0  # stopped cleanly
    finally:
        process.kill()
        process.wait()


def test_the_harness(tmp_path: Path) -> None:
    with start_node(tmp_path / "node", properties={"num.partitions": "3"}) as node:
        pid = node.pid
        assert Path(node.directory, "pid").read_text() == f"{pid}\n"
        node.kill()
        assert not node.running
        assert not Path(node.directory, "pid").exists()
        port = node.port
        node.start()
        assert node.port == port
        node.restart(properties={"num.partitions": "4"})
        assert "num.partitions=4\n" in Path(node.properties_path).read_text()
        assert node.stop() == 0
        node.start()
        pid = node.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    node = start_node(tmp_path / "node", properties={"num.partitions": "none"})
    with pytest.raises(NodeFailed, match=r"node 1 did not start: .*num\.partitions"), node:
        pytest.fail("it started")
