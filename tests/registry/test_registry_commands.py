"""`penstock schemas` against a registry, `penstock registry` and `penstock up --registry` as processes, and kcat."""

from __future__ import annotations

import json
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from narrowing import present
from penstock.local.ports import free_ports
from penstock.testing.nodes import RunningNode
from registry_nodes import Nodes, ask, record_schema

if TYPE_CHECKING:
    from conftest import CommandLine

Name = Callable[[str], str]


def test_schemas_from_the_command_line(cli: CommandLine, nodes: Nodes, tmp_path: Path) -> None:
    url = nodes.start().url
    more = ("--registry", url)
    first, second, broken = (tmp_path / name for name in ("first.avsc", "second.avsc", "broken.avsc"))
    first.write_text(record_schema("A", "x"))
    second.write_text(record_schema("A", "x", optional=("y",)))
    broken.write_text(record_schema("A", "z"))
    assert cli("schemas", "list", *more).err == "there are no schemas\n"
    assert cli("schemas", "register", "a-value", str(first), *more).out == "1\n"
    assert cli("schemas", "check", "a-value", str(second), *more).out == "compatible\n"
    refused = cli("schemas", "check", "a-value", str(broken), *more)
    assert refused.status == 1 and "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.out
    assert "incompatible" in cli("schemas", "register", "a-value", str(broken), *more).err
    assert json.loads(cli("schemas", "register", "a-value", str(second), "--json", *more).out)["version"] == 2
    (row,) = json.loads(cli("schemas", "list", "--json", *more).out)
    assert row == {"subject": "a-value", "type": "AVRO", "versions": [1, 2], "id": 2}
    assert json.loads(cli("schemas", "show", "a-value", "--version", "1", *more).out) == json.loads(first.read_text())
    assert json.loads(cli("schemas", "show", "2", *more).out) == json.loads(second.read_text())
    assert '+      "name": "y",' in cli("schemas", "diff", "a-value", "1", *more).out
    using = tmp_path / "using.avsc"
    using.write_text(json.dumps({"type": "record", "name": "U", "fields": [{"name": "a", "type": "A"}]}))
    assert cli("schemas", "register", "0-using", str(using), "--reference", "A=a-value:1", *more).out == "3\n"
    assert cli("schemas", "delete", "a-value", "--version", "2", *more).err == "deleted a-value 2\n"
    exported = cli("schemas", "export", *more).out
    assert [json.loads(line)["id"] for line in exported.splitlines()] == [1, 3, 2]
    with Nodes(nodes.bootstrap, str(tmp_path / "copy"), f"{nodes.topic}-copy") as copies:
        copy = ("--registry", copies.start().url)
        done = cli("schemas", "import", "-", *copy, stdin=exported.encode())
        assert done.err == "imported 3 versions of 2 subjects\n"
        assert cli("schemas", "export", *copy).out == exported
    assert cli("schemas", "show", "nothing", *more).err.endswith(": Subject 'nothing' not found. (40401)\n")
    unreachable = cli("schemas", "list", "--registry", "127.0.0.1:1")
    assert unreachable.err == "penstock: schema registry http://127.0.0.1:1: Connection refused\n"
    assert "is not an address" in cli("schemas", "list", "--registry", "ftp://127.0.0.1").err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_says_one_line_and_ends_with_status_0(registry_broker: RunningNode, number: int) -> None:
    (port,) = free_ports(1, "127.0.0.1")
    command = [sys.executable, "-m", "penstock", "registry", "-b", registry_broker.bootstrap]
    process = subprocess.Popen(
        [*command, "--listen", f"127.0.0.1:{port}", "--topic", "_one_line", "--group", "one-line"],
        stdout=subprocess.PIPE,
        text=True,
    )
    stdout = present(process.stdout)
    try:
        assert stdout.readline() == f"ready http://127.0.0.1:{port}\n"
        assert ask(f"http://127.0.0.1:{port}", "GET", "/subjects").content == []
        process.send_signal(number)
        assert stdout.read() == ""
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        stdout.close()


def test_a_port_in_use_is_one_line(registry_broker: RunningNode, cli: CommandLine) -> None:
    failed = cli("registry", "-b", registry_broker.bootstrap, "--listen", registry_broker.bootstrap)
    assert failed.status == 1
    assert failed.err.startswith("penstock: cannot listen on 127.0.0.1:") and failed.err.count("\n") == 1


def test_up_with_a_registry(tmp_path: Path) -> None:
    broker_port, port = free_ports(2, "127.0.0.1")
    command = [sys.executable, "-m", "penstock", "up", "--registry", "--json", "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command, "--port", str(broker_port), "--registry-port", str(port)], stdout=subprocess.PIPE, text=True
    )
    stdout = present(process.stdout)
    try:
        ready = json.loads(stdout.readline())
        assert ready == {"ready": [f"127.0.0.1:{broker_port}"], "registry": f"http://127.0.0.1:{port}"}
        made = ask(ready["registry"], "POST", "/subjects/a-value/versions", {"schema": '"string"'})
        assert made.content["id"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        stdout.close()


def kcat_lacks_avro() -> bool:
    if shutil.which("kcat") is None:
        return True
    options = ["-C", "-b", "127.0.0.1:1", "-t", "x", "-e", "-m", "1", "-s", "value=avro", "-r", "http://127.0.0.1:1"]
    outcome = subprocess.run(["kcat", *options], capture_output=True, text=True, timeout=60)
    return "lacks Avro" in outcome.stderr


@pytest.mark.skipif(kcat_lacks_avro(), reason="kcat is not installed, or built without Avro (as Debian's is)")
def test_kcat_reads_avro_by_the_registry(registry_broker: RunningNode, registry_url: str, unique_topic: Name) -> None:
    topic = unique_topic("kcat")
    schema = {"type": "record", "name": "K", "fields": [{"name": "n", "type": "int"}]}
    made = ask(registry_url, "POST", f"/subjects/{topic}-value/versions", {"schema": json.dumps(schema)}).content
    producer = Producer({"bootstrap.servers": registry_broker.bootstrap})
    producer.produce(topic, struct.pack(">bI", 0, made["id"]) + b"\x54")  # 42 as a zigzag varint
    producer.flush()
    read = ["kcat", "-b", registry_broker.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
    outcome = subprocess.run(
        [*read, "-s", "value=avro", "-r", registry_url], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(outcome.stdout) == {"n": 42}
