"""A real Prometheus that scrapes a real cluster at work: each panel of the dashboard has something to draw."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from penstock.local.ports import free_ports
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode
from waiting import wait_until

DOCS = Path(__file__).parents[2] / "docs"
WAIT_S = 120.0
JOB = "penstock"
PROPERTIES = {
    "penstock.metrics.listener": "127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
MAY_BE_ZERO = {
    "Offline partitions",
    "Under-replicated",
    "Below min.insync.replicas",
    "Brokers fenced",
    "Furthest behind, by follower",
    "Nodes behind",
}


class Prometheus:
    def __init__(self, directory: Path, cluster: RunningCluster) -> None:
        self._targets = directory / "targets.json"
        self._cluster = cluster
        self.aim()
        configuration = {  # JSON is YAML
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [
                {"job_name": JOB, "file_sd_configs": [{"files": [str(self._targets)], "refresh_interval": "1s"}]}
            ],
        }
        (directory / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")
        address = f"127.0.0.1:{free_ports(1)[0]}"
        self._url = f"http://{address}/api/v1"
        self.log = directory / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, self.log.read_text, WAIT_S)

    def aim(self) -> None:
        """At where the nodes have their numbers now: it is another port whenever one starts."""
        nodes = [node for node in (*self._cluster.brokers, *self._cluster.controllers) if node.running]
        text = json.dumps([{"targets": [address_of(node) for node in nodes]}])
        aside = self._targets.with_suffix(".new")
        aside.write_text(text, encoding="utf-8")
        aside.replace(self._targets)

    def ask(self, path: str, **parameters: str) -> Any:
        """A query that Prometheus cannot read fails with its own words."""
        try:
            with urllib.request.urlopen(
                f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}", timeout=30
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def values(self, expression: str) -> list[float]:
        """Of all series that have one now."""
        expression = expression.replace("$job", JOB).replace("$__rate_interval", "15s")
        found = [float(each["value"][1]) for each in self.ask("query", query=expression)["result"]]
        return [value for value in found if math.isfinite(value)]

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return bool(self.ask("targets"))
        except (urllib.error.URLError, AssertionError):  # not yet
            return False


def address_of(node: RunningNode) -> str:
    addresses: list[str] = re.findall(r"metrics at http://(\S+)/metrics", node.log_text())
    return addresses[-1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    if shutil.which("prometheus") is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    directory = tmp_path_factory.mktemp("cluster")
    with start_cluster(directory, brokers=3, controllers=3, properties=PROPERTIES) as running:
        running.create_topic("orders", partitions=6, replicas=3)
        yield running


def settings_for(cluster: RunningCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 0}


def member_of_billing(cluster: RunningCluster) -> Consumer:
    consumer = Consumer({**settings_for(cluster), "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    return consumer


@contextlib.contextmanager
def working(cluster: RunningCluster) -> Iterator[None]:
    """A producer, a group, and a transaction that is open."""
    stopping = threading.Event()
    settings = settings_for(cluster)

    def produce() -> None:
        producer = Producer(settings)
        while not stopping.wait(0.005):
            producer.produce("orders", b"x" * 100)
            producer.poll(0)
        producer.flush(WAIT_S)

    def consume() -> None:
        consumer = member_of_billing(cluster)
        while not stopping.is_set():
            consumer.consume(100, 0.1)
        consumer.close()

    minutes = {"transactional.id": "open-for-long", "transaction.timeout.ms": 900_000}
    transactional = Producer({**settings, **minutes})
    transactional.init_transactions(WAIT_S)
    transactional.begin_transaction()
    transactional.produce("orders", b"entry")
    transactional.flush(WAIT_S)
    threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        transactional.abort_transaction(WAIT_S)


@pytest.fixture(scope="module")
def prometheus(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with working(cluster):
        running = Prometheus(tmp_path_factory.mktemp("prometheus"), cluster)
        try:
            yield running
        finally:
            running.process.terminate()
            running.process.wait()


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "grafana" / "penstock.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_panel_has_something_to_draw(cluster: RunningCluster, prometheus: Prometheus) -> None:
    queries = {
        (panel["title"], target["refId"]): target["expr"]
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    }
    healthy = [queries[title, "A"] for title in ("Offline partitions", "Under-replicated", "Brokers fenced")]
    wait_until(
        lambda: len(prometheus.values("up")) == 6 and min(prometheus.values("up")) == 1,
        prometheus.log.read_text,
        WAIT_S,
    )
    wait_until(lambda: all(prometheus.values(query) == [0] for query in healthy), lambda: healthy, WAIT_S)

    # One broker is away for a while, which shows, and is back.
    cluster.broker(3).kill()
    wait_until(
        lambda: prometheus.values(queries["Under-replicated", "A"]) > [0],
        "a partition is under-replicated",
        WAIT_S,
    )
    wait_until(lambda: prometheus.values(queries["Brokers fenced", "A"]) == [1], "a broker is fenced", WAIT_S)
    cluster.broker(3).start()
    prometheus.aim()
    # A second member comes and goes, and its group rebalances.
    second = member_of_billing(cluster)
    wait_until(lambda: second.poll(0.1), "it reads something", WAIT_S)
    second.close()

    waiting = dict(queries)
    seen: dict[tuple[str, str], list[float]] = {}

    def drawn() -> bool:
        for title, reference in list(waiting):
            values = seen[title, reference] = prometheus.values(waiting[title, reference])
            if values and (max(values) > 0 or title in MAY_BE_ZERO):
                del waiting[title, reference]
        return not waiting

    wait_until(drawn, lambda: {title: (query, seen[title]) for title, query in waiting.items()}, WAIT_S)
    wait_until(lambda: all(prometheus.values(query) == [0] for query in healthy), lambda: healthy, WAIT_S)
    assert prometheus.values(queries["Active controllers", "A"]) == [1]
    # What the panels choose from.
    variables = [each["query"]["query"] for each in dashboard()["templating"]["list"] if each["type"] == "query"]
    (variable,) = variables
    match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable)
    assert match is not None
    assert prometheus.ask(f"label/{match[2]}/values", **{"match[]": match[1]}) == [JOB]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_alerts_can_be_read(cluster: RunningCluster, prometheus: Prometheus) -> None:
    """Those of the documentation; each is a threshold on something that there is."""
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    alerts = re.findall(r"^\| `([^`]+ [<>!]=? [^`]+)`", text, re.MULTILINE)
    assert len(alerts) > 5
    for alert in alerts:
        measured = re.split(r" (?:<|>|!=) ", alert)[0].replace("5m", "15s").replace("10m", "30s")
        wait_until(partial(prometheus.values, measured), alert, WAIT_S)
        prometheus.values(alert)


@pytest.mark.soak
def test_every_metric_has_a_kind_and_a_help(cluster: RunningCluster, prometheus: Prometheus) -> None:
    """As Prometheus understands what it has scraped."""
    wait_until(lambda: prometheus.values("up"), prometheus.log.read_text, WAIT_S)
    known = prometheus.ask("metadata")
    assert "kafka_network_requestmetrics_totaltime_seconds" in known
    for name, metadata in known.items():
        assert all(each["type"] in {"counter", "gauge", "histogram"} and each["help"] for each in metadata), name
