"""Spark's own Kafka connector works with our brokers, and our source and sink with Apache Kafka's."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports
from penstock.testing import Cluster
from spark.connector_jars import broker_jars, connector_jars

DRIVER = os.path.join(os.path.dirname(__file__), "connector_cases.py")
DEADLINE_S = 500.0
SOAK_DEADLINE_S = 900.0
READY_S = 90.0

# What is quick: one start of Spark, and as few jobs as show every kind of read and write.
QUICK = ["committed_reads", "stream_writes", "same_rows"]


def run_cases(
    bootstrap: str,
    directory: Path,
    jars: Sequence[str],
    prefix: str,
    cases: Sequence[str],
    deadline: float = DEADLINE_S,
) -> None:
    """All of them if none is named."""
    command = [sys.executable, DRIVER, bootstrap, str(directory), ",".join(jars), prefix, *cases]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=deadline)
    answers = [json.loads(line) for line in outcome.stdout.splitlines()]
    wrong = [f"{answer['case']}: {answer['wrong']}" for answer in answers if answer["wrong"]]
    assert not wrong, "\n".join(wrong)
    assert answers and {answer["case"] for answer in answers} >= set(cases), outcome.stderr
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.soak
@pytest.mark.timeout(600)  # a JVM takes ten seconds to start, and many times that on a machine at its limit
def test_sparks_connector_on_our_brokers(cluster: Cluster, tmp_path: Path, unique_topic: Callable[[str], str]) -> None:
    run_cases(cluster.bootstrap, tmp_path, connector_jars(), unique_topic("doors"), QUICK)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_DEADLINE_S)
def test_all_that_sparks_connector_documents_on_our_brokers(
    three_brokers: Cluster, tmp_path: Path, unique_topic: Callable[[str], str]
) -> None:
    run_cases(three_brokers.bootstrap, tmp_path, connector_jars(), unique_topic("doors"), [], SOAK_DEADLINE_S)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_DEADLINE_S)
def test_our_source_and_sink_on_apache_kafka(tmp_path: Path, unique_topic: Callable[[str], str]) -> None:
    """The cases in which both take part, so that Spark's own connector says what is right."""
    jars = connector_jars()
    with apache_kafka(tmp_path) as bootstrap:
        run_cases(bootstrap, tmp_path, jars, unique_topic("doors"), ["same_rows", "passed_on"], SOAK_DEADLINE_S)


@contextlib.contextmanager
def apache_kafka(directory: Path) -> Iterator[str]:
    """One node of Apache Kafka's: its address."""
    class_path = ":".join(broker_jars())
    port, controller_port = free_ports(2)
    properties = directory / "server.properties"
    properties.write_text(
        f"""
        process.roles=broker,controller
        node.id=1
        controller.quorum.voters=1@127.0.0.1:{controller_port}
        listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
        advertised.listeners=PLAINTEXT://127.0.0.1:{port}
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
        log.dirs={directory / "logs"}
        offsets.topic.replication.factor=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        group.initial.rebalance.delay.ms=0
        """.replace("        ", "")
    )
    java = ["java", "-XX:+UseSerialGC", "-Xmx768m", "-cp", class_path]
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
    with open(directory / "kafka.log", "wb") as log:
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)],
            check=True,
            stdout=log,
            stderr=log,
        )
        node = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log, cwd=directory)
    try:
        bootstrap = f"127.0.0.1:{port}"
        wait_for(bootstrap, node, directory / "kafka.log")
        yield bootstrap
    finally:
        node.terminate()
        node.wait()


def wait_for(bootstrap: str, node: subprocess.Popen[bytes], log: os.PathLike[str]) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with Admin(bootstrap, timeout=5.0) as admin:
                admin.topics.list()
            return
        except ClientError:
            with open(log, encoding="utf-8", errors="replace") as text:
                assert node.poll() is None and time.monotonic() < deadline, text.read()
        time.sleep(0.1)
