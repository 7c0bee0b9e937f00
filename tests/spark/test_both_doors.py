"""Spark's own Kafka connector works with our brokers, and our source and sink with Apache Kafka's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from apache_kafka import apache_kafka
from penstock.testing import Cluster
from spark.connector_jars import connector_jars

DRIVER = os.path.join(os.path.dirname(__file__), "connector_cases.py")
DEADLINE_S = 500.0
SOAK_DEADLINE_S = 900.0

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
