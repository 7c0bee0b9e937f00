"""The ACLs that docs/howto/secure.md gives a Spark query are enough for it: nothing is refused.

The query connects without a login, so the user of the page becomes ANONYMOUS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from documentation import blocks_of, run_console
from penstock.arrow import read_table, write_table
from penstock.client.wire.admin import Acl, Admin
from penstock.spark import queries, watch
from penstock.testing.nodes import start_node
from waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "secure.md"
PROPERTIES = {
    "transaction.two.phase.commit.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
}
EVERYTHING = (("TOPIC", "*"), ("GROUP", "*"), ("TRANSACTIONAL_ID", "*"), ("CLUSTER", "kafka-cluster"))


def give_rights(bootstrap: str) -> None:
    """As the page says; and to nobody else any other."""
    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP": bootstrap,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    (block,) = [text for language, text in blocks_of(PAGE) if language == "console" and "User:etl" in text]
    run_console(
        block.replace("User:etl", "User:ANONYMOUS"),
        lambda command: subprocess.run(
            command, capture_output=True, text=True, timeout=180, check=False, env=environment
        ),
    )
    with Admin(bootstrap) as admin:
        admin.acls.create(
            Acl(principal="User:admin", operation="ALL", resource_type=kind, resource=name) for kind, name in EVERYTHING
        )


def test_the_rights_of_the_page_suffice(spark: SparkSession, tmp_path: Path) -> None:
    with start_node(tmp_path / "node", properties=PROPERTIES) as node:
        with Admin(node.bootstrap) as admin:
            admin.topics.create("orders", partitions=1)
        write_table(node.bootstrap, "orders", pa.table({"value": [f"row {number}" for number in range(100)]}))
        give_rights(node.bootstrap)

        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", node.bootstrap)
        writer = reader.options(subscribe="orders", startingOffsets="earliest").load().writeStream.format("penstock")
        writer = writer.option("kafka.bootstrap.servers", node.bootstrap).option("topic", "totals")
        watch(spark)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("totals").start()
        try:
            query.processAllAvailable()
            wait_until(lambda: [each.name for each in queries(node.bootstrap)] == ["totals"])
        finally:
            query.stop()
        assert [line for line in node.log_text().splitlines() if "is Denied" in line] == []
        # Nobody here may read what was written, or change ACLs: the way back in, as the page says.
        node.restart(properties={"super.users": "User:admin;User:ANONYMOUS"})
        assert read_table(node.bootstrap, "totals").num_rows == 100
