"""`penstock doctor` names the cause of faults that were really made, on real brokers.

Two of them are made by other means than nature's. A wrong clock is that of a broker whose Python shifts `time` (by a
`sitecustomize`): a machine's clock cannot be set for one process. A disk that is nearly full is a
disk of which more should be free than is.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from clients.librdkafka import close
from penstock import ShareConsumer
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.connection import Connection
from penstock.local.ports import free_ports
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.reports import REPORT_KEY, PipelineReport, QueryReport
from penstock.protocol.messages.produce import ProduceResponse
from penstock.simulator.requests import batch, now_ms, only_partition, produce_request
from penstock.spark.progress.topic import PipelinesTopic
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

if TYPE_CHECKING:
    from conftest import CommandLine

DEADLINE_S = 60
HOUR_MS = 3_600_000
BEFORE_VERSION_2 = 11  # of Produce: later ones are always checked with the coordinator
SHIFTED_CLOCK = """
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + 3600
time.time_ns = lambda: _time_ns() + 3600 * 10**9
"""

Findings = dict[str, dict[str, Any]]
Doctor = Callable[..., tuple[int, Findings]]


@pytest.fixture
def doctor(cli: CommandLine) -> Doctor:
    """`doctor(address, ...)`: the exit status, and findings by their codes."""

    def run(*arguments: str) -> tuple[int, Findings]:
        quick = ["--watch", "0.5", "--timeout", "20", "--min-disk-free", "0"]
        result = cli("doctor", "--json", *quick, *arguments)
        report = json.loads(result.out)
        findings = {finding["code"]: finding for finding in report["findings"]}
        lost = findings.keys() & {"listener-unreachable", "listener-misleading"}
        assert bool(report["unobserved"]) == bool(lost)
        return result.status, findings

    return run


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """Lives an hour ahead, and believes producers what they say of transactions."""
    elsewhere = tmp_path_factory.mktemp("clock")
    (elsewhere / "sitecustomize.py").write_text(SHIFTED_CLOCK)
    properties = {
        "penstock.metrics.listener": f"127.0.0.1:{free_ports(1)[0]}",
        "transaction.partition.verification.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(elsewhere), prepend=os.pathsep)
            directory = tmp_path_factory.mktemp("doctor") / "node"
            running = stack.enter_context(start_node(directory, properties=properties))
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster"), brokers=2, controllers=1) as running:
        yield running


# -- addresses -------------------------------------------------------------------------------------------------------


def test_nobody_there(doctor: Doctor, cli: CommandLine) -> None:
    (closed,) = free_ports(1)
    status, findings = doctor(f"127.0.0.1:{closed}")
    assert status == 2
    assert "nothing listens there" in findings["bootstrap-unreachable"]["why"]
    status, findings = doctor("no-such-host.invalid:9092")
    assert status == 2
    assert "the name is not known here" in findings["bootstrap-unreachable"]["why"]
    assert cli("doctor", "127.0.0.1:99999").err == "penstock: '127.0.0.1:99999' is not a HOST:PORT\n"
    shown = cli("doctor", f"127.0.0.1:{closed}")
    assert shown.status == 2
    assert shown.out.startswith(
        f"ERROR the bootstrap address 127.0.0.1:{closed} cannot be used\n  why   nothing listens"
    )


def test_somebody_else_there(doctor: Doctor, cluster: RunningCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        status, findings = doctor(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert status == 2
    assert "does not speak Kafka's protocol" in findings["bootstrap-unreachable"]["why"]
    status, findings = doctor(cluster.controllers[0].bootstrap)
    assert status == 2
    assert "a controller listens there" in findings["bootstrap-unreachable"]["why"]


def test_a_listener_that_leads_elsewhere(doctor: Doctor, node: RunningNode, tmp_path: Path) -> None:
    (closed,) = free_ports(1)
    properties = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{closed}"}
    with start_node(tmp_path / "node", properties=properties) as misled:
        status, findings = doctor(misled.bootstrap)
        assert status == 1
        assert list(findings) == ["listener-unreachable"]
        assert f"connect to 127.0.0.1:{closed}" in findings["listener-unreachable"]["what"]

        misled.restart(properties={"advertised.listeners": f"PLAINTEXT://{node.bootstrap}"})
        status, findings = doctor(misled.bootstrap)
        assert status == 1
        assert "where another cluster answers" in findings["listener-misleading"]["what"]

        status, findings = doctor(f"{misled.bootstrap},{node.bootstrap}")
        assert "lead to different clusters" in findings["wrong-cluster"]["what"]


def test_the_wrong_cluster(doctor: Doctor, cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        name = admin.cluster.describe().cluster_id
    assert doctor(cluster.bootstrap, "--cluster-id", str(name)) == (0, {})
    status, findings = doctor(cluster.bootstrap, "--cluster-id", "another")
    assert status == 1
    assert findings["wrong-cluster"]["what"] == f"this is cluster {name}, not another"


# -- a broker, its clock, its disk, its transactions, its groups -----------------------------------------------------


def test_clock_disk_transaction_and_lag(doctor: Doctor, node: RunningNode, cli: CommandLine) -> None:
    with Admin(node.bootstrap) as admin:
        admin.topics.create("orders", partitions=1)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for _ in range(50):
            producer.produce("orders", b"order")
        assert producer.flush(DEADLINE_S) == 0
        admin.groups.alter_offsets("billing", {TopicPartition("orders", 0): 7})
    with Connection(node.host, node.port) as connection:
        an_hour_ago = now_ms() - HOUR_MS
        producer_state: dict[str, Any] = {
            "producer_id": 77_777,
            "producer_epoch": 3,
            "base_sequence": 0,
            "transactional": True,
        }
        request = produce_request("orders", batch("a", timestamp=an_hour_ago, **producer_state))
        request.transactional_id = "forgotten"
        answer = connection.request(request, ProduceResponse, newest=BEFORE_VERSION_2)
        assert only_partition(answer).error_code == 0

    arguments = ["--min-disk-free", "100", "--max-lag", "40"]
    status, findings = doctor(node.bootstrap, *arguments)
    assert status == 1
    assert set(findings) == {"clock-skew", "disk-nearly-full", "transaction-hanging", "group-lagging"}
    assert findings["clock-skew"]["subject"] == "broker 1"
    assert abs(float(findings["clock-skew"]["what"].split()[6]) - 3600) < 20
    assert node.data_directory in findings["disk-nearly-full"]["what"]
    assert findings["transaction-hanging"]["todo"] == "penstock transactions abort orders:0 --start-offset 50"
    # Records that are open are not there yet for those who wait for their end, but the partition ends behind them.
    assert findings["group-lagging"]["what"] == "group 'billing' is 44 records behind"
    assert "no members" in findings["group-lagging"]["why"]

    # What it says to do helps.
    assert cli("transactions", "abort", "orders:0", "--start-offset", "50", "-b", node.bootstrap).status == 0
    assert cli("groups", "delete", "billing", "-b", node.bootstrap).status == 0
    assert doctor(node.bootstrap, "--max-clock-skew", "2h") == (0, {})
    shown = cli("doctor", node.bootstrap, "--max-clock-skew", "2h", "--min-disk-free", "0", "--watch", "0")
    assert shown.out.endswith("all is well\n")
    assert shown.err == ""


def test_share_groups(doctor: Doctor, node: RunningNode, cli: CommandLine) -> None:
    arguments = ["--max-lag", "40", "--max-clock-skew", "2h", "--watch", "0.5"]
    with Admin(node.bootstrap) as admin:
        admin.topics.create("jobs", partitions=1)
        admin.share_groups.reset("workers", "earliest", topics=["jobs"])
        admin.configs.alter(ResourceType.GROUP, "workers", {"share.delivery.count.limit": "2"})
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for _ in range(50):
        producer.produce("jobs", b"job")
    assert producer.flush(DEADLINE_S) == 0
    finding = doctor(node.bootstrap, *arguments)[1]["share-group-lagging"]
    assert finding["what"] == "share group 'workers' has 50 records to do"
    assert "no members" in finding["why"]
    with ShareConsumer(node.bootstrap, "jobs", group="workers", explicit=True, max_records=1) as consumer:
        records = iter(consumer)
        consumer.release(next(records))
        consumer.flush()
        assert next(records).delivery_count == 2
        _, findings = doctor(node.bootstrap, *arguments)
        assert findings.keys() == {"share-group-lagging", "share-group-last-attempts"}
        assert "have 1 record and nothing was finished" in findings["share-group-lagging"]["why"]
        for _ in range(20):
            consumer.accept(next(records))
    # The record was not accepted at its last attempt.
    _, findings = doctor(node.bootstrap, *arguments)
    assert findings.keys() == {"share-group-discards"}
    assert findings["share-group-discards"]["what"].startswith("share group 'workers' has given up 1 record")
    assert doctor(node.bootstrap, *arguments, "--max-dead-letters", "1") == (0, {})
    assert cli("share-groups", "delete", "workers", "-b", node.bootstrap).status == 0


def test_pipelines(doctor: Doctor, node: RunningNode) -> None:
    """Reports as pipelines write them; a group of Spark's, which never has members."""

    def report(name: str, state: Any, ago_ms: int, **figures: Any) -> None:
        query = QueryReport(name="orders", state="running", groups=(f"spark-{name}.orders",), **figures)
        told_ms = now_ms() - ago_ms
        made = PipelineReport(
            name=name, run_id="r", state=state, file=f"{name}.yaml", started_ms=told_ms, heartbeat_ms=told_ms,
            queries=(query,),
        )  # fmt: skip
        topic.put(f"{REPORT_KEY}{name}", made.to_json())

    with Admin(node.bootstrap) as admin:
        admin.topics.create("sold", partitions=1)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for _ in range(50):
            producer.produce("sold", b"one")
        assert producer.flush(DEADLINE_S) == 0
        for name in ("shop", "store"):
            admin.groups.alter_offsets(f"spark-{name}.orders", {TopicPartition("sold", 0): 7})
        topic = PipelinesTopic(node.bootstrap, timeout=DEADLINE_S)
        try:
            report("shop", "running", 0, dead_letters=2)
            report("store", "running", 60_000)
            status, findings = doctor(node.bootstrap, "--max-clock-skew", "2h", "--max-lag", "40")
            assert status == 1
            assert set(findings) == {"pipeline-lagging", "pipeline-lost", "pipeline-dead-letters"}
            assert findings["pipeline-lagging"]["what"] == "query 'orders' of pipeline 'shop' is 43 records behind"
            assert "43 records wait for it" in findings["pipeline-lost"]["what"]
            report("shop", "ended", 0)
            report("store", "stopped", 0)
        finally:
            topic.close()
    assert doctor(node.bootstrap, "--max-clock-skew", "2h") == (0, {})


def test_a_consumer_that_keeps_rebalancing(doctor: Doctor, node: RunningNode) -> None:
    with Admin(node.bootstrap) as admin:
        admin.topics.create("restless-topic", partitions=1)
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "restless"})
            consumer.subscribe(["restless-topic"])
            while not consumer.assignment():  # else librdkafka may hang when it is closed
                consumer.poll(0.05)
            close(consumer)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        finding = wait_until(
            lambda: doctor(node.bootstrap, "--watch", "2", "--max-clock-skew", "2h")[1].get("group-rebalancing")
        )
    finally:
        stop.set()
        thread.join()
    assert finding["subject"] == "restless"
    assert "max.poll.interval.ms" in finding["why"]


# -- partitions ------------------------------------------------------------------------------------------------------


def test_brokers_that_die_or_share_an_address(doctor: Doctor, cluster: RunningCluster) -> None:
    with cluster.admin() as admin:
        admin.topics.create("kept", assignment=[[1, 2]], configs={"min.insync.replicas": "1"})
        admin.topics.create("strict", assignment=[[1, 2]], configs={"min.insync.replicas": "2"})
        admin.topics.create("single", assignment=[[2]])
    for topic in ("kept", "strict"):
        cluster.wait_for_isr(topic)
    assert doctor(cluster.bootstrap) == (0, {})
    first, second = cluster.brokers
    second.kill()

    def noticed() -> bool:
        with cluster.admin() as admin:
            described = admin.cluster.describe()
        return len(described.offline) == 1 and len(described.under_replicated) == 3

    cluster.wait_until(noticed, "the death of broker 2")
    status, findings = doctor(first.bootstrap)
    assert status == 1
    assert set(findings) == {
        "broker-down",
        "partition-offline",
        "partition-under-min-isr",
        "partition-under-replicated",
    }
    assert findings["broker-down"]["subject"] == "broker 2"
    assert findings["partition-offline"]["subject"] == "single-0"
    assert findings["partition-under-min-isr"]["subject"] == "strict-0"
    assert findings["partition-under-replicated"]["subject"] == "kept-0"

    second.start(properties={"advertised.listeners": f"PLAINTEXT://{first.bootstrap}"})
    _, findings = doctor(first.bootstrap)
    assert "where another broker of the cluster answers" in findings["listener-misleading"]["what"]
    assert findings["listener-misleading"]["subject"] == "broker 2"
