"""Two machines of two brokers each, by `penstock host`: placement, the metrics page, and a rolling restart under load.

Both are this machine, by two of its names.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports, is_free
from steady_load import Load, numbers
from waiting import wait_until

FILE = """\
name = "{name}"
brokers = 2
first-id = {first_id}
port = {port}
directory = "{directory}"
metrics = "127.0.0.1:{metrics}"
listen = "127.0.0.1"
pin = true
{controller}
[settings]
"controller.quorum.voters" = "1@127.0.0.1:{controller_port}"
"penstock.cluster.id" = "4L6g3nShT-eMCtK--X86sw"
"default.replication.factor" = 2
"offsets.topic.replication.factor" = 2
"""

OFFSETS = (0, 1, 1000, 1001)  # of the ports of two brokers and their metrics


@dataclass
class Host:
    process: subprocess.Popen[str]
    file: Path
    directory: Path
    ids: tuple[int, int]
    port: int
    metrics: int

    def pids(self) -> list[int]:
        return [int((self.directory / f"broker-{broker_id}" / "pid").read_text()) for broker_id in self.ids]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    root = tmp_path_factory.mktemp("hosts")
    controller_port, *metrics = free_ports(3)
    started: list[Host] = []
    try:
        for number, name in enumerate(("127.0.0.1", "localhost")):
            directory = root / f"host-{number}"
            file = root / f"host-{number}.toml"
            taken = {controller_port, *metrics, *(each.port + more for each in started for more in OFFSETS)}
            port = next(
                port
                for port in free_ports(50)
                if all(port + more not in taken and is_free(port + more) for more in OFFSETS)
            )
            first_id = 101 + 100 * number
            file.write_text(
                FILE.format(
                    name=name,
                    first_id=first_id,
                    port=port,
                    directory=directory,
                    metrics=metrics[number],
                    controller=f"[controller]\nid = 1\nport = {controller_port}\n" if number == 0 else "",
                    controller_port=controller_port,
                )
            )
            command = [sys.executable, "-m", "penstock", "host", str(file)]
            log = (root / f"host-{number}.log").open("w")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            log.close()
            started.append(Host(process, file, directory, (first_id, first_id + 1), port, metrics[number]))
        for number, host in enumerate(started):
            assert host.process.stdout is not None
            line = host.process.stdout.readline()
            assert line.startswith("ready "), (root / f"host-{number}.log").read_text()
        yield started
    finally:
        for host in started:
            host.process.send_signal(signal.SIGTERM)
        for host in started:
            host.process.wait(60)
            if host.process.stdout is not None:
                host.process.stdout.close()


def test_replicas_are_on_different_hosts_and_brokers_on_their_cores(hosts: list[Host]) -> None:
    with Admin(f"127.0.0.1:{hosts[0].port}") as admin:
        admin.topics.create("spread", partitions=8)
        wait_until(lambda: "spread" in {each.name for each in admin.topics.list()}, "the broker knows the topic")
        (topic,) = admin.topics.describe(["spread"])
        assert {broker.host for broker in admin.cluster.describe().brokers} == {"127.0.0.1", "localhost"}
    assert all({replica // 100 for replica in each.replicas} == {1, 2} for each in topic.partitions)
    assert {each.replicas[0] for each in topic.partitions} == {101, 102, 201, 202}
    usable = sorted(os.sched_getaffinity(0))
    for host in hosts:
        for index, pid in enumerate(host.pids()):
            assert os.sched_getaffinity(pid) == {usable[index % len(usable)]}


def test_one_metrics_page_for_all_brokers(hosts: list[Host]) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{hosts[1].metrics}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    assert 'penstock_host_node_up{node="201"} 1' in page
    assert 'penstock_host_node_up{node="202"} 1' in page
    samples = [line for line in page.splitlines() if line.startswith("kafka_server_replicamanager_partitioncount")]
    assert [sample.split('"')[1] for sample in samples] == ["201", "202"]


def test_a_rolling_restart_under_load_loses_nothing_and_brings_new_settings(hosts: list[Host]) -> None:
    host = hosts[0]
    bootstrap = ",".join(f"127.0.0.1:{each.port}" for each in hosts)
    with Admin(bootstrap) as admin:
        admin.topics.create("orders", partitions=4)
    before = host.pids()
    load = Load(bootstrap, "orders", 4)
    wait_until(lambda: len(load.acknowledged) > 100, "records are written")
    host.file.write_text(host.file.read_text() + '"num.partitions" = 7\n')
    asked = [sys.executable, "-m", "penstock", "host", str(host.file), "--restart"]
    subprocess.run(asked, check=True, capture_output=True)
    log = host.file.with_suffix(".log")
    wait_until(lambda: "all nodes are restarted" in log.read_text(), log.read_text, seconds=180)
    acknowledged = load.end()
    assert not set(before) & set(host.pids())
    assert "num.partitions=7" in (host.directory / "broker-101" / "server.properties").read_text()
    assert sorted(numbers(bootstrap, "orders", 4, len(acknowledged))) == sorted(acknowledged)
