"""kill -9 under load: nothing acknowledged is lost, and an idempotent producer's records are stored once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.workload import Writer, check, read_all
from penstock.testing.nodes import RunningNode, start_node

PARTITIONS = 3
PROPERTIES = {
    "log.segment.bytes": "2000000",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.scheduler.interval.ms": "1000",
}


def create_topic(node: RunningNode, topic: str, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config or {})])[topic].result(20)


def campaign(node: RunningNode, rounds: int, seed: int, settings: dict[str, object], config: dict[str, str]) -> Writer:
    """Kill and restart the node `rounds` times at random moments, at least one of them in mid-write."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    create_topic(node, "events", config)
    writer = Writer(node.bootstrap, "events", PARTITIONS, settings)
    writer.start()
    for _ in range(rounds):
        writer.wait_for(len(writer.acknowledged) + rng.randrange(1, 4000))
        time.sleep(rng.random() * 0.05)  # the moment of death is to be anywhere within a request
        node.kill()
        node.start()
    writer.wait_for(len(writer.acknowledged) + 100)
    writer.stop()
    return writer


@pytest.mark.parametrize("acks", ["all", pytest.param("1", marks=pytest.mark.soak)])
def test_acknowledged_records_survive_kill(tmp_path: Path, acks: str) -> None:
    with start_node(tmp_path / "node", properties=PROPERTIES) as node:
        settings = {"enable.idempotence": acks == "all", "acks": acks}
        writer = campaign(node, 4, 1, settings, {})
        assert not writer.failures
        check(writer, read_all(node.bootstrap, "events", PARTITIONS), exactly_once=acks == "all")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flush", [False, True], ids=["page-cache", "flush.messages=1"])
def test_acknowledged_records_survive_many_kills(tmp_path: Path, seed: int, flush: bool) -> None:
    with start_node(tmp_path / "node", properties=PROPERTIES) as node:
        settings = {"enable.idempotence": True, "acks": "all"}
        writer = campaign(node, 30, seed, settings, {"flush.messages": "1"} if flush else {})
        assert not writer.failures
        found = read_all(node.bootstrap, "events", PARTITIONS, timeout=300)
        check(writer, found, exactly_once=True)
        print(f"{len(writer.acknowledged)} acknowledged, 30 kills, none lost, none twice")
