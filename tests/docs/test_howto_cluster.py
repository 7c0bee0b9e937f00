"""The how-tos about a cluster of machines, one after the other: deployed, upgraded by rolling restart, grown, shrunk.

The machines are processes here: alpha, beta, gamma and delta become ports of this one, `ssh HOST sudo systemctl restart
penstock` a request to this test. Files and commands are those of the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from documentation import blocks_of, run_console
from penstock.local.host import parse_host_file, plan_host
from penstock.local.ports import free_ports
from penstock.settings.node import NodeSettings

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
MACHINES = ("alpha", "beta", "gamma", "delta")
PORTS = (9092, 9093, 9094, 9095, 9096, 9404)
SSH = """\
#!{python}
import socket, sys
host, *command = sys.argv[1:]
assert command == ["sudo", "systemctl", "restart", "penstock"], command
with socket.socket(socket.AF_UNIX) as client:
    client.connect({path!r})
    client.sendall(host.encode() + b"\\n")
    assert client.recv(10) == b"restarted"
"""


class Machines:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = iter(free_ports(len(PORTS) * len(MACHINES)))
        self.addresses = {f"{name}:{port}": next(ports) for name in MACHINES for port in PORTS}
        self.bin = directory / "bin"
        self.bin.mkdir()
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {
            **os.environ,
            "PATH": f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP": self.here("alpha:9092,beta:9092,gamma:9092"),
        }

    def here(self, text: str) -> str:
        for address, port in self.addresses.items():
            text = text.replace(address, f"127.0.0.1:{port}")
        return text

    def configure(self, name: str, node_id: int, properties: str) -> None:
        """As the page has it for its own machine, with what differs on this one."""
        for pattern, value in (
            (r"node\.id=.*", f"node.id={node_id}"),
            (r"broker\.rack=.*", f"broker.rack={name}"),
            (r"advertised\.listeners=.*", f"advertised.listeners=PLAINTEXT://{name}:9092"),
            (r"log\.dirs=.*", f"log.dirs={self.directory / name}"),
        ):
            properties, replaced = re.subn(pattern, value, properties)
            assert replaced == 1, pattern
        properties = re.sub(
            r"(//|=):(\d+)", rf"\g<1>{name}:\2", properties
        )  # all addresses of the machine: its only one
        (self.directory / f"{name}.properties").write_text(self.here(properties))

    def start(self, name: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                ["penstock", "server", str(self.directory / f"{name}.properties")], stderr=log, env=self.environment
            )

    def stop(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.terminate()
        assert node.wait(60) == 0

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        command = [self.here(word) for word in command]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=400, check=False, env=self.environment, cwd=self.directory
        )
        for name in MACHINES:  # so that pages can show names
            port = self.addresses[f"{name}:9092"]
            result.stdout = re.sub(rf"127\.0\.0\.1( +){port}", rf"{name}\g<1>{port}", result.stdout)
        return result


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)

    class Restart(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            name = self.rfile.readline().decode().strip()
            machines.stop(name)
            machines.start(name)
            self.wfile.write(b"restarted")

    path = str(tmp_path / "ssh.socket")
    (machines.bin / "ssh").write_text(SSH.format(python=sys.executable, path=path))
    (machines.bin / "ssh").chmod(0o755)
    with socketserver.UnixStreamServer(path, Restart) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield machines
        finally:
            server.shutdown()
            thread.join()
            for node in machines.nodes.values():
                node.kill()
                node.wait()


def block(page: str, language: str) -> str:
    (found,) = [text for name, text in blocks_of(HOWTO / page) if name == language]
    return found


def consoles(page: str) -> list[str]:
    return [text for name, text in blocks_of(HOWTO / page) if name == "console"]


def wait_for_brokers(machines: Machines, count: int) -> None:
    found = f"penstock cluster describe | grep -c ' active$' | grep -qx {count}"
    assert machines.run(["bash", "-c", f"until {found}; do sleep 0.2; done"]).returncode == 0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_cluster_is_deployed_upgraded_and_grown(machines: Machines) -> None:
    for node_id, name in enumerate(MACHINES[:3], 1):
        machines.configure(name, node_id, block("deploy.md", "properties"))
        machines.start(name)
    wait_for_brokers(machines, 3)
    for text in consoles("deploy.md") + consoles("upgrade.md"):
        run_console(text, machines.run)

    machines.configure("delta", 4, block("grow.md", "properties"))
    machines.start("delta")
    wait_for_brokers(machines, 4)
    for text in consoles("grow.md"):
        run_console(text, machines.run)
    machines.stop("delta")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("page", ["deploy.md", "host.md"])
def test_systemd_takes_the_unit(tmp_path: Path, page: str) -> None:
    unit = tmp_path / "penstock.service"
    program = Path(sys.executable).parent / "penstock"
    unit.write_text(block(page, "ini").replace("/opt/penstock/bin/penstock", str(program)))
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_file_of_a_host_is_one() -> None:
    nodes = plan_host(parse_host_file(tomllib.loads(block("host.md", "toml")), range(16)))
    assert [node.node_id for node in nodes] == [1, *range(101, 109)]
    assert [node.cores for node in nodes[1:]] == [(core,) for core in range(8)]
    for node in nodes:
        settings = NodeSettings.from_properties(node.own_properties())
        assert settings.default_replication_factor == 3
