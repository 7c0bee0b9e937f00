"""Spark on every protocol and mechanism of a broker with ACLs, with its own connector and with ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client.wire.admin import Acl, Admin
from penstock.spark.sink.two_phase import PREFIX
from security.every_broker import CASES, USERS, Broker, Case, every_broker, token
from security.sasl_world import HAS_OAUTH
from spark.connector_jars import connector_jars

DRIVER = Path(__file__).parent / "mechanism_cases.py"
DEADLINE_S = 500.0


def allow(broker: Broker, topics: list[str]) -> None:
    grants = [
        *(("ALL", "TOPIC", topic, "LITERAL") for topic in (*topics, "__spark_decisions")),
        ("READ", "GROUP", "spark-", "PREFIXED"),
        ("ALL", "TRANSACTIONAL_ID", PREFIX, "PREFIXED"),
    ]
    with Admin(broker.admin) as admin:
        for topic in topics:
            admin.topics.create(topic, partitions=1)
        admin.acls.create(
            Acl(principal=f"User:{user}", operation=operation, resource_type=kind, resource=name, pattern=pattern)
            for user in USERS.values()
            for operation, kind, name, pattern in grants
        )


def theirs(broker: Broker, case: Case) -> dict[str, str]:
    lines = Path(broker.java(case)).read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    return {"kafka.bootstrap.servers": broker.address(case)} | {f"kafka.{key}": settings[key] for key in settings}


def ours(broker: Broker, case: Case) -> dict[str, str]:
    """A file with everything, as credentials must not be in options."""
    path = Path(broker.java(case))
    if case.mechanism == "OAUTHBEARER":
        bearer = path.with_suffix(".token")
        bearer.write_text(token(case.user))
        kept = [line for line in path.read_text().splitlines() if not line.startswith("sasl.jaas.config")]
        path = path.with_suffix(".ours")
        path.write_text("\n".join([*kept, f"sasl.oauthbearer.token.endpoint.url={bearer.as_uri()}"]) + "\n")
    path.chmod(0o600)
    return {"kafka.bootstrap.servers": broker.address(case), "kafka.penstock.config": str(path)}


@pytest.mark.soak  # a JVM with jars that Maven finds, and dozens of jobs
@pytest.mark.timeout(DEADLINE_S + 60)
@pytest.mark.skipif(not HAS_OAUTH, reason="the extra penstock[security] is not installed")
def test_both_connectors_on_every_mechanism(tmp_path: Path) -> None:
    jars = connector_jars()
    with every_broker(tmp_path) as broker:
        topics = {case: f"spark-{number}" for number, case in enumerate(CASES)}
        allow(broker, list(topics.values()))
        asked = "".join(
            json.dumps({"case": str(case), "topic": topic, "theirs": theirs(broker, case), "ours": ours(broker, case)})
            + "\n"
            for case, topic in topics.items()
        )
        command = [sys.executable, str(DRIVER), ",".join(jars)]
        outcome = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=DEADLINE_S)
    assert outcome.returncode == 0, outcome.stderr[-5000:]
    written = ["by kafka", "by penstock"]
    assert [json.loads(line) for line in outcome.stdout.splitlines()] == [
        {"case": str(case), "kafka": written, "penstock": written} for case in CASES
    ]
