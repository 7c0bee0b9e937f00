"""Kafka's own commands and Java's Admin move replicas between the log directories of a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clients.cases import numbered_records
from clients.drivers.java import JavaClient, class_path, run_tool
from penstock.client.wire.admin import Admin, ResourceType
from penstock.model.ids import TopicPartition
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

REASSIGN = "reassign.ReassignPartitionsCommand"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    base = tmp_path_factory.mktemp("disks")
    return [str(base / name) for name in ("a", "b")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, disks: list[str]) -> Iterator[RunningNode]:
    class_path()  # skips where there is no Java
    with start_node(tmp_path_factory.mktemp("node"), properties={"log.dirs": ",".join(disks)}) as node:
        yield node


def tool(node: RunningNode, name: str, *arguments: str) -> str:
    outcome = run_tool(name, "--bootstrap-server", node.bootstrap, *arguments)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def plan_of(path: Path, topic: str, directory: str) -> str:
    partition = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [directory]}
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return str(path)


def home_of(admin: Admin, topic: str) -> str:
    (home,) = (
        each.path
        for each in admin.log_dirs.describe()
        for replica in each.replicas
        if replica.topic == topic and not replica.future
    )
    return home


def described(node: RunningNode) -> dict[str, Any]:
    """What kafka-log-dirs prints: directories, each with its partitions."""
    said = tool(node, "LogDirsCommand", "--describe", "--broker-list", "1")
    (found,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    return {each["logDir"]: each["partitions"] for each in found["brokers"][0]["logDirs"]}


@pytest.mark.soak
def test_kafka_reassign_partitions_with_log_dirs(node: RunningNode, disks: list[str], tmp_path: Path) -> None:
    with closing(JavaClient(node.bootstrap)) as client, Admin(node.bootstrap) as admin:
        admin.topics.create("tools")
        client.produce("tools", numbered_records(100))
        home = home_of(admin, "tools")
        target = next(disk for disk in disks if disk != home)
        plan = ("--reassignment-json-file", plan_of(tmp_path / "plan.json", "tools", target))
        said = tool(node, REASSIGN, *plan, "--execute", "--replica-alter-log-dirs-throttle", "1")
        assert f"Successfully started moving log directory to {target} for replica tools-0 with broker 1" in said
        assert "Reassignment of replica tools-0-1 is still in progress." in tool(node, REASSIGN, *plan, "--verify")
        (future,) = [each for each in described(node)[target] if each["partition"] == "tools-0"]
        assert future["isFuture"]
        (current,) = [each for each in described(node)[home] if each["partition"] == "tools-0"]
        assert (current["isFuture"], current["offsetLag"]) == (False, 0)

        admin.configs.alter(ResourceType.BROKER, "1", delete=[THROTTLE])
        wait_until(lambda: not admin.log_dirs.moves(), "the move ends")
        said = tool(node, REASSIGN, *plan, "--verify")
        assert "Reassignment of replica tools-0-1 completed successfully." in said
        assert home_of(admin, "tools") == target
        assert client.latest("tools", 0) == 100


@pytest.mark.soak
def test_kafka_reassign_partitions_cancels(node: RunningNode, disks: list[str], tmp_path: Path) -> None:
    """To cancel a move of this kind is to ask for the directory where the replica is."""
    with closing(JavaClient(node.bootstrap)) as client, Admin(node.bootstrap) as admin:
        admin.topics.create("stays")
        client.produce("stays", numbered_records(100))
        home = home_of(admin, "stays")
        target = next(disk for disk in disks if disk != home)
        away = ("--reassignment-json-file", plan_of(tmp_path / "away.json", "stays", target))
        tool(node, REASSIGN, *away, "--execute", "--replica-alter-log-dirs-throttle", "1")
        assert [each.topic for each in admin.log_dirs.moves()] == ["stays"]
        tool(node, REASSIGN, *away, "--cancel")
        back = ("--reassignment-json-file", plan_of(tmp_path / "back.json", "stays", home))
        tool(node, REASSIGN, *back, "--execute")
        assert admin.log_dirs.moves() == []
        said = tool(node, REASSIGN, *back, "--verify")
        assert "Reassignment of replica stays-0-1 completed successfully." in said
        assert home_of(admin, "stays") == home


def test_javas_admin(node: RunningNode, disks: list[str]) -> None:
    with closing(JavaClient(node.bootstrap)) as client, Admin(node.bootstrap) as admin:
        admin.topics.create("java")
        client.produce("java", numbered_records(100))
        target = next(disk for disk in disks if disk != home_of(admin, "java"))
        admin.configs.alter(ResourceType.BROKER, "1", {THROTTLE: "1"})
        replica = {"topic": "java", "partition": 0, "broker": 1}
        assert client.call("move_replica", directory=target, **replica) is None
        home, future, _ = client.call("replica_log_dir", **replica)
        assert (home, future) == (home_of(admin, "java"), target)
        admin.configs.alter(ResourceType.BROKER, "1", delete=[THROTTLE])
        wait_until(lambda: not admin.log_dirs.moves(), "the move ends")
        assert client.call("replica_log_dir", **replica) == [target, None, -1]
        assert admin.log_dirs.cancel(1, [TopicPartition("java", 0)]) == []
        assert client.call("move_replica", directory="/not/there", **replica) == "LogDirNotFoundException"
