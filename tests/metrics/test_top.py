"""`penstock top`: rates between two looks, and the page of a real cluster, once and live."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from penstock.cli.top_view import BrokerLook, GroupLook, Look, TopicLook, compare
from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition
from penstock.testing.nodes import RunningNode, start_node

if TYPE_CHECKING:
    from conftest import CommandLine

DEADLINE_S = 60


def look(at: float, *, count: int, metrics: bool = True) -> Look:
    """A cluster in which `count` says how much has happened."""
    measured = float(count) if metrics else None
    broker = BrokerLook(1, "a:9092", False, 3, 3, 3, measured, measured, measured)
    busy = TopicLook(1, 1, 0, count, measured, measured, measured)
    return Look(
        at,
        brokers={1: broker},
        topics={"a-quiet": TopicLook(1, 1, 0, 7, measured and 7.0, 0.0), "busy": busy},
        groups={"a-near": GroupLook("Stable", 1, 1, 0), "far": GroupLook("Empty", 0, 50, count)},
    )


def test_rates_are_what_happened_between_two_looks() -> None:
    view = compare(look(10.0, count=100), look(12.0, count=300))
    (broker,) = view.brokers
    assert (broker.bytes_in, broker.bytes_out, broker.requests) == (100.0, 100.0, 100.0)
    assert [(row.name, row.messages, row.bytes_in) for row in view.topics] == [
        ("busy", 100.0, 100.0),
        ("a-quiet", 0, 0),
    ]
    assert [(row.name, row.read) for row in view.groups] == [("far", 100.0), ("a-near", 0)]


def test_without_metrics_offsets_tell() -> None:
    view = compare(look(10.0, count=100, metrics=False), look(12.0, count=300, metrics=False))
    assert view.brokers[0].bytes_in is None
    assert [(row.name, row.messages, row.bytes_in) for row in view.topics] == [
        ("busy", 100.0, None),
        ("a-quiet", 0, None),
    ]


def test_the_first_look_and_what_began_anew_have_no_rate() -> None:
    assert compare(None, look(1.0, count=5)).topics[0].messages is None
    restarted = compare(look(10.0, count=100), look(12.0, count=3))
    assert restarted.brokers[0].bytes_in is None
    new = compare(Look(1.0), look(2.0, count=5))
    assert new.groups[0].read is None


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {"penstock.metrics.listener": f"127.0.0.1:{free_ports(1)[0]}", "offsets.topic.num.partitions": "1"}
    with start_node(tmp_path_factory.mktemp("top") / "node", properties=properties) as running:
        with Admin(running.bootstrap) as admin:
            admin.topics.create("orders", partitions=2)
            admin.topics.create("unused", partitions=1)
            admin.groups.alter_offsets("[billing]", {TopicPartition("orders", 0): 0})
            admin.share_groups.reset("packers", "earliest", topics=["orders"])
        yield running


@pytest.fixture
def load(node: RunningNode) -> Iterator[None]:
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 1})

    def work() -> None:
        while not stop.is_set():
            producer.produce("orders", b"x" * 100, partition=0)
            producer.poll(0.002)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join()
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.usefixtures("load")
def test_one_page(node: RunningNode, cli: CommandLine) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        result = cli("top", "--json", "--interval", "0.3", "-b", node.bootstrap)
        assert (result.status, result.err) == (0, "")
        page = json.loads(result.out)
        first, second = page["topics"]
        if first["records_per_second"] and first["bytes_in_per_second"] and all(each["lag"] for each in page["groups"]):
            break
        assert time.monotonic() < deadline
    assert {(each["group"], each["type"]) for each in page["groups"]} == {
        ("[billing]", "classic"),
        ("packers", "share"),
    }
    assert (first["topic"], second["topic"]) == ("orders", "unused")
    assert second["records_per_second"] == 0
    (broker,) = page["brokers"]
    assert broker["bytes_in_per_second"] > 0
    assert broker["requests_per_second"] > 0
    assert broker["leads"] == broker["in_sync"] == broker["replicas"]
    assert (page["under_replicated"], page["offline"], page["notes"]) == (0, 0, [])

    shown = cli("top", "--once", "--interval", "0.1", "-b", node.bootstrap).out
    assert "all partitions in sync" in shown
    names = [line.split()[0] for line in shown.splitlines() if line and not line.startswith(" ")]
    assert set(names[-2:]) == {"[billing]", "packers"}
    assert len(shown.splitlines()) == 13


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_page_fits_its_terminal(
    node: RunningNode, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("penstock.cli.top.PLAIN_WIDTH", width)
    shown = cli("top", "--once", "--interval", "0.1", "-b", node.bootstrap).out
    assert "…" not in shown
    headings = {word for line in shown.splitlines() for word in line.split() if line.startswith(("BROKER", "TOPIC"))}
    assert {"BROKER", "STATE", "SYNC", "IN/s", "OUT/s", "TOPIC", "RECORDS/s"} <= headings
    assert ("CONNECTIONS" in headings) == (width == 120)
    tables = [line for line in shown.splitlines() if not line.startswith("cluster ")]
    assert max(map(len, tables)) <= width


@pytest.mark.usefixtures("load")
def test_live_until_it_is_interrupted(node: RunningNode) -> None:
    controlling, terminal = pty.openpty()
    command = [sys.executable, "-m", "penstock", "top", "--interval", "0.1", "-b", node.bootstrap]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    try:
        deadline = time.monotonic() + DEADLINE_S
        while shown.count(b"TOPIC") < 3:  # drawn again and again
            assert time.monotonic() < deadline, shown
            if select.select([controlling], [], [], 0.1)[0]:
                shown += os.read(controlling, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([controlling], [], [], 0.1)[0]:
                try:
                    os.read(controlling, 65536)
                except OSError:  # the other end is closed
                    break
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(controlling)
    assert b"orders" in shown
