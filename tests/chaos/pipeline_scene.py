"""The pipeline of examples/pipelines/fleet.yaml on a Spark cluster, run by the command line as people run it: from
topics to topics, to a Delta table and to PostgreSQL.

A run is a process. A run that ended gets a successor, as from a supervisor. Spark notes the plan of a batch in
its checkpoint (`offsets/N`) before it does anything, and its end (`commits/N`) after everything: between the two, batch
N is under way.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable

from chaos.fleet_events import Fleet, Row
from penstock.arrow import Writer, read_table
from penstock.pipelines.operate.remote import reports
from penstock.spark.runtime.worker_python import worker_python
from penstock.testing import Cluster
from postgres_server import PostgresServer
from spark.standalone import StandaloneCluster, marked
from waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "fleet.yaml"
TOPICS = ("truck-locations", "truck-fuel", "trucks", "truck-alerts", "fleet.dead-letters")
QUERIES = ("locations", "fuel", "trucks")
TRUCK_COLUMNS = "truck", "since", "reports", "speed", "speed_max", "latitude", "longitude", "litres", "litres_used"
ALERT_COLUMNS = "truck", "since", "latitude", "longitude", "litres_used"
PATIENCE_S = 900.0
BATCH_RECORDS = 150
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Of processes that are killed before they have become quick."""
ROUNDS = 10
"""Fed at a time: forty minutes, and two batches and more of each query."""


class Scene:
    def __init__(
        self, spark: StandaloneCluster, kafka: Cluster, postgres: PostgresServer, directory: Path, *, once: bool
    ) -> None:
        """`once`: a run ends when it has read what there was."""
        self.spark, self.kafka, self.postgres = spark, kafka, postgres
        self.fleet = Fleet(seed=1)
        self.drivers = 0
        self._directory, self._once = directory, once
        self._driver: subprocess.Popen[bytes] | None = None
        for topic in TOPICS:
            kafka.create_topic(topic, 2, configs={"retention.ms": "-1"})
        (directory / "fleet.yaml").write_text(yaml.safe_dump(self._pipeline()))

    def _pipeline(self) -> dict[str, Any]:
        """The example, with tables beside its topics."""
        pipeline: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
        del pipeline["tests"]
        pipeline["parameters"]["bootstrap"] = self.kafka.bootstrap
        pipeline["checkpoints"] = str(self._directory / "checkpoints")
        pipeline["restart"] = {"attempts": 100, "backoff": "500ms", "backoff_max": "2s"}
        pipeline["spark"] = {
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.memory": "600m",
            "spark.driver.memory": "512m",
            "spark.executor.extraJavaOptions": JAVA_OPTIONS,
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            # All is on this machine. Executors elsewhere would not have it; without it Python starts slowly, and Spark
            # gives those of the driver ten seconds.
            "spark.pyspark.python": worker_python(),
        }
        for source in pipeline["sources"].values():
            source["max_records"] = BATCH_RECORDS
        pipeline["sinks"]["lake"] = {"from": "trucks", "format": "delta", "path": str(self._directory / "lake")}
        table = {"table": "trucks", "key": ["truck", "since"], "options": self.postgres.options}
        pipeline["sinks"]["table"] = {"from": "trucks", "format": "postgres", **table}
        return pipeline

    def feed(self) -> None:
        with Writer(self.kafka.bootstrap) as writer:
            for _ in range(ROUNDS):
                for topic, events in self.fleet.next_round().items():
                    rows = {"key": [each.key for each in events], "value": [each.value for each in events]}
                    writer.write(topic, pa.table(rows))

    # -- runs

    def driver(self) -> subprocess.Popen[bytes]:
        """The one that runs, or its successor."""
        if self._driver is None or self._driver.poll() is not None:
            self.drivers += 1
            once = ["--once"] if self._once else []
            with open(self._log(self.drivers), "wb") as log:
                self._driver = subprocess.Popen(
                    [*_PENSTOCK, "pipeline", "run", "fleet.yaml", *once, "--master", self.spark.master],
                    cwd=self._directory,
                    env=self.spark.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                )
        return self._driver

    def java(self) -> int | None:
        """The JVM of the driver, or what starts it; None if neither is there yet."""
        group = self.driver().pid
        return next((pid for pid in marked(self.spark.mark) if _group(pid) == group and _program(pid) == "java"), None)

    def kill_driver(self) -> None:
        """With its JVM."""
        driver = self.driver()
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    def settle(self) -> None:
        """All input is processed, by whichever run."""
        if self._once:
            self.wait_for(lambda: self.driver().wait(PATIENCE_S) == 0, "a run that ends well")
            self._driver = None
        else:
            self.wait_for(self._has_settled, "all of the output")

    def _has_settled(self) -> bool:
        """Looking at all of the output takes time that the run may need, so the cheap question comes first."""
        rests = self.driver().poll() is None and all(self.batch_under_way(query) is None for query in QUERIES)
        return rests and not self.differences()

    def stop(self) -> float:
        """As somebody does who wants it to end; the seconds until its process had."""
        driver, began = self.driver(), time.monotonic()
        asked = subprocess.run(
            [*_PENSTOCK, "pipeline", "stop", "fleet", "-b", self.kafka.bootstrap, "--timeout", "300"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (asked.returncode, asked.stdout) == (0, "fleet: stopped\n"), f"{asked}\n{self.log_text()}"
        assert driver.wait(PATIENCE_S) == 0, self.log_text()
        return time.monotonic() - began

    def trouble(self) -> str:
        """What keeps the run from continuing, as its report says; empty if it continues, or has ended."""
        report = reports(self.kafka.bootstrap).get("fleet")
        queries = report.queries if report is not None and report.is_live else ()
        return "; ".join(query.error or "" for query in queries if query.failures)

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        def state() -> str:
            return f"{what}\n{self.differences()}\n{self.log_text()}"

        wait_until(condition, state, PATIENCE_S, between=lambda: time.sleep(0.5))

    def end(self) -> None:
        if self._driver is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()

    # -- batches

    def batch_under_way(self, query: str) -> int | None:
        planned = self._noted(query, "offsets")
        return planned if planned is not None and not self.is_done(query, planned) else None

    def is_done(self, query: str, batch: int) -> bool:
        return (self._directory / "checkpoints" / "fleet" / query / "commits" / str(batch)).exists()

    def batches_done(self) -> int:
        return sum(1 for _ in self._directory.glob("checkpoints/fleet/*/commits/[0-9]*"))

    def _noted(self, query: str, log: str) -> int | None:
        entries = (self._directory / "checkpoints" / "fleet" / query / log).glob("[0-9]*")
        return max((int(entry.name) for entry in entries if entry.name.isdecimal()), default=None)

    def batch_in_lake(self) -> int | None:
        """The last one that the table's log has."""
        for version in sorted(self._directory.glob("lake/_delta_log/*.json"), reverse=True):
            for action in map(json.loads, version.read_text().splitlines()):
                if "txn" in action:
                    return int(action["txn"]["version"])
        return None

    def batch_in_table(self) -> int | None:
        found = self.postgres.query("SELECT to_regclass('penstock_batches') IS NOT NULL")
        rows = self.postgres.query("SELECT batch FROM penstock_batches") if found == [(True,)] else []
        return int(rows[0][0]) if rows else None

    # -- what was written

    def differences(self) -> dict[str, dict[str, list[Any]]]:
        """From what the same events are in plain Python; of each output what is missing, and what is too much."""
        trucks, alerts = self.fleet.trucks(), self.fleet.alerts()
        assert 0 < len(alerts) < len(trucks)
        compared = {
            "topic trucks": (trucks, _rows(self._values("trucks"), TRUCK_COLUMNS)),
            "topic truck-alerts": (alerts, _rows(self._values("truck-alerts"), ALERT_COLUMNS)),
            "Delta": (trucks, _rows(self._lake(), TRUCK_COLUMNS)),
            "PostgreSQL": (trucks, _rows(self._table(), TRUCK_COLUMNS)),
            "dead letters": (self.fleet.letters, self._letters()),
        }
        return {
            name: {"missing": list((expected - found).elements()), "too much": list((found - expected).elements())}
            for name, (expected, found) in compared.items()
            if expected != found
        }

    def _values(self, topic: str) -> list[dict[str, Any]]:
        texts = read_table(self.kafka.bootstrap, topic, value="string", columns=["value"])["value"].to_pylist()
        return [json.loads(text) for text in texts]

    def _lake(self) -> list[dict[str, Any]]:
        path = str(self._directory / "lake")
        return DeltaTable(path).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(path) else []

    def _table(self) -> Iterator[dict[str, Any]]:
        if self.postgres.query("SELECT to_regclass('trucks') IS NOT NULL") == [(True,)]:
            for row in self.postgres.query(f"SELECT {', '.join(TRUCK_COLUMNS)} FROM trucks"):
                yield dict(zip(TRUCK_COLUMNS, row, strict=True))

    def _letters(self) -> Counter[tuple[str, str]]:
        table = read_table(self.kafka.bootstrap, "fleet.dead-letters", value="string", columns=["value", "headers"])
        headers = ({each["key"]: each["value"] for each in row} for row in table["headers"].to_pylist())
        topics = [each["dead-letter.topic"].decode() for each in headers]
        return Counter(zip(topics, table["value"].to_pylist(), strict=True))

    def log_text(self) -> str:
        """The end of what the last drivers have said."""
        logs = [self._log(number) for number in range(max(1, self.drivers - 1), self.drivers + 1)]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-4000:]}" for path in logs)

    def _log(self, number: int) -> Path:
        return self._directory / f"driver-{number}.log"


_PENSTOCK = (sys.executable, "-m", "penstock")


def _rows(found: Iterable[dict[str, Any]], columns: tuple[str, ...]) -> Counter[Row]:
    """Times are text in topics."""
    times = ({**row, "since": _time(row["since"])} for row in found)
    return Counter(tuple(row[column] for column in columns) for row in times)


def _time(given: str | datetime) -> datetime:
    return datetime.fromisoformat(given) if isinstance(given, str) else given


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
