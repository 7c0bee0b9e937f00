"""`penstock up --brokers 3` as a user runs it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports, is_free
from unit.cli.up_process import StartUp, Up, is_alive, starting_up
from waiting import wait_until

NAMES = [*(f"node-{number}" for number in (1, 2, 3)), *(f"controller-{number}" for number in (1, 2, 3))]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[StartUp]:
    with starting_up(tmp_path / "data", three_free_ports) as start:
        yield start


def three_free_ports() -> int:
    """The first of three that follow each other."""
    return next(port for _ in range(100) for port in free_ports(1) if all(is_free(port + more) for more in range(3)))


def pids(running: Up) -> dict[str, int]:
    return {name: int((running.data / name / "pid").read_text()) for name in NAMES}


def test_ready_restarts_stop_and_start_again(up: StartUp) -> None:
    first = up("--brokers", "3")
    addresses = [f"127.0.0.1:{first.port + number}" for number in range(3)]
    assert first.ready_line() == f"ready {','.join(addresses)}\n"
    for name in NAMES:
        assert {"server.properties", "server.log", "pid", "data"} <= set(os.listdir(first.data / name))
    for address in addresses:
        with Admin(address) as admin:
            described = admin.cluster.describe()
        assert [(broker.broker_id, broker.fenced) for broker in described.brokers] == [
            (1, False),
            (2, False),
            (3, False),
        ]
        assert described.quorum is not None
        assert {voter.node_id for voter in described.quorum.voters} == {10_001, 10_002, 10_003}
    with Admin(addresses[1]) as admin:
        assert admin.topics.create("orders").replication_factor == 3

    before = pids(first)
    os.kill(before["node-2"], signal.SIGKILL)
    assert first.error_line() == "penstock up: node 2 was killed by SIGKILL, starting it again in 0.2 s\n"
    os.kill(before["controller-1"], signal.SIGKILL)
    assert first.error_line() == "penstock up: controller 10001 was killed by SIGKILL, starting it again in 0.2 s\n"

    def whole() -> bool:
        with Admin(addresses[0]) as admin:
            described = admin.cluster.describe()
        return (
            len([broker for broker in described.brokers if not broker.fenced]) == 3 and not described.under_replicated
        )

    wait_until(lambda: pids_readable(first) and pids(first)["node-2"] != before["node-2"])
    wait_until(whole)
    running = pids(first)
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == (0, "", "")
    assert not any(map(is_alive, running.values()))

    second = up("--brokers", "3", port=first.port)
    second.ready_line()
    with Admin(addresses[2]) as admin:
        assert [topic.name for topic in admin.topics.list()] == ["orders"]
    second.process.send_signal(signal.SIGINT)
    assert second.end() == (0, "", "")

    other = up("--brokers", "2")
    assert other.end() == (
        1,
        "",
        f"penstock: {first.data} holds a cluster of 3 brokers; start it with --brokers 3 or more, or choose another "
        "directory with --data\n",
    )


def pids_readable(running: Up) -> bool:
    return all((running.data / name / "pid").exists() and (running.data / name / "pid").read_text() for name in NAMES)
