"""Spark at a broker with TLS, passwords and ACLs: rows arrive once, and no secret is where Spark shows things."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock import Acl, Admin
from penstock.arrow import read_table, write_table
from penstock.spark.sink.two_phase import PREFIX
from security.sasl_world import SCRAM_MODULE
from security.secure_world import PASSWORD, SecureNode, secure_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

ROWS = 200


def allow_spark(node: SecureNode) -> None:
    """What a query with a source and an exactly-once sink needs beyond its topics."""
    needed = [
        ("TOPIC", "__spark_decisions", "LITERAL"),
        ("TOPIC", "__pipelines", "LITERAL"),
        ("GROUP", "spark-", "PREFIXED"),
        ("TRANSACTIONAL_ID", PREFIX, "PREFIXED"),
    ]
    with node.admin() as admin:
        admin.acls.create(
            Acl(principal="User:alice", operation="ALL", resource_type=kind, resource=name, pattern=pattern)
            for kind, name, pattern in needed
        )


def test_a_stream_from_topic_to_topic(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with secure_node(tmp_path) as node:
        allow_spark(node)
        reference = node.reference("alice")
        with Admin(reference) as admin:
            for topic in ("orders", "orders-out"):
                admin.topics.create(topic, partitions=2)
        write_table(reference, "orders", pa.table({"value": [str(number) for number in range(ROWS)]}))
        # The source has a file with everything, the sink a file with the secret only.
        source = {"kafka.penstock.config": node.file("alice"), "subscribe": "orders", "startingOffsets": "earliest"}
        jaas = tmp_path / "jaas"
        jaas.write_text(f'{SCRAM_MODULE} required username="alice" password="{PASSWORD}";\n')
        sink = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f"${{secret:file:{jaas}}}",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
            "topic": "orders-out",
        }
        both = {"kafka.bootstrap.servers": node.bootstrap}
        rows = spark.readStream.format("penstock").options(**both, **source).load()
        checkpoint = tmp_path / "checkpoint"
        query = (
            rows.select("value")
            .writeStream.format("penstock")
            .options(**both, **sink, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        plans = str(query._jsq.streamingQuery().logicalPlan().toString())
        plans += query._jsq.streamingQuery().lastExecution().toString()
        copied = read_table(reference, "orders-out", value="string")

        assert sorted(map(int, copied["value"].to_pylist())) == list(range(ROWS))
        assert PASSWORD not in plans
        assert not any(PASSWORD in path.read_text("latin-1") for path in checkpoint.rglob("*") if path.is_file())
        processes = subprocess.run(["ps", "-wwe", "-o", "args"], capture_output=True, text=True, check=True)
        assert PASSWORD not in processes.stdout
        printed = capfd.readouterr()
        assert PASSWORD not in printed.out + printed.err
        assert not any(PASSWORD in value for value in os.environ.values())
