"""`penstock log-dirs` and `admin.log_dirs`, on a real broker with two log directories."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Producer
from penstock.client.wire.admin import Admin, ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until
from wire import Wire, read_all

if TYPE_CHECKING:
    from conftest import CommandLine

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    base = tmp_path_factory.mktemp("disks")
    return [str(base / name) for name in ("a", "b")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, disks: list[str]) -> Iterator[RunningNode]:
    properties = {"log.dirs": ",".join(disks), "log.segment.delete.delay.ms": "0"}
    with start_node(tmp_path_factory.mktemp("node"), properties=properties) as node:
        yield node


@pytest.fixture
def admin(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.bootstrap)
    with Admin(node.bootstrap) as admin:
        yield admin


def filled(admin: Admin, node: RunningNode, topic: str) -> None:
    admin.topics.create(topic, partitions=2)
    with Producer(node.bootstrap) as producer:
        for number in range(200):
            producer.send(topic, f"{number} ".encode() + os.urandom(1000), partition=number % 2)


def home_of(admin: Admin, partition: TopicPartition) -> str:
    (home,) = (
        each.path
        for each in admin.log_dirs.describe()
        for replica in each.replicas
        if (replica.topic, replica.partition) == partition and not replica.future
    )
    return home


def numbers(node: RunningNode, topic: str, partition: int) -> list[int]:
    with Wire(node) as wire:
        return [int((record.value or b"").split(b" ")[0]) for record in read_all(wire, topic, partition=partition)]


def test_a_replica_is_moved(cli: CommandLine, admin: Admin, node: RunningNode, disks: list[str]) -> None:
    filled(admin, node, "moved")
    partition = TopicPartition("moved", 0)
    target = next(disk for disk in disks if disk != home_of(admin, partition))
    outcome = cli("log-dirs", "move", "moved", "--broker", "1", "--partitions", "0", "--to", target, "--wait")
    assert outcome.status == 0, outcome.err
    assert outcome.out.split() == ["TOPIC", "PARTITION", "DIRECTORY", "moved", "0", target]
    assert home_of(admin, partition) == target
    assert admin.log_dirs.moves() == []
    assert numbers(node, "moved", 0) == list(range(0, 200, 2))
    assert sorted(name for name in os.listdir(target) if name.startswith("moved-0")) == ["moved-0"]


def test_a_move_is_seen_and_cancelled(cli: CommandLine, admin: Admin, node: RunningNode, disks: list[str]) -> None:
    filled(admin, node, "slow")
    partition = TopicPartition("slow", 1)
    home = home_of(admin, partition)
    target = next(disk for disk in disks if disk != home)
    admin.configs.alter(ResourceType.BROKER, "1", {THROTTLE: "1"})
    try:
        assert cli("log-dirs", "move", "slow", "--broker", "1", "--partitions", "1", "--to", target).status == 0
        (move,) = admin.log_dirs.moves()
        assert (move.broker_id, move.topic, move.partition, move.source, move.target) == (1, "slow", 1, home, target)
        text = cli("log-dirs", "describe", "--broker", "1", "--replicas").out
        assert "FROM" in text
        described = json.loads(cli("log-dirs", "describe", "--json").out)
        assert [each["path"] for each in described["directories"]] == disks
        assert described["moves"][0]["target"] == target
        assert cli("log-dirs", "move", "slow", "--broker", "1", "--cancel").out == "cancelled slow-1\n"
        assert admin.log_dirs.moves() == []
        assert cli("log-dirs", "move", "slow", "--broker", "1", "--cancel").out == ""
    finally:
        admin.configs.alter(ResourceType.BROKER, "1", delete=[THROTTLE])
    assert home_of(admin, partition) == home
    assert numbers(node, "slow", 1) == list(range(1, 200, 2))


def test_a_killed_broker_goes_on_with_its_move(admin: Admin, node: RunningNode, disks: list[str]) -> None:
    filled(admin, node, "killed")
    partition = TopicPartition("killed", 0)
    target = next(disk for disk in disks if disk != home_of(admin, partition))
    admin.configs.alter(ResourceType.BROKER, "1", {THROTTLE: "1"})
    admin.log_dirs.move(1, {partition: target})
    (move,) = admin.log_dirs.moves()
    assert move.target == target
    node.kill()
    node.start()
    admin.configs.alter(ResourceType.BROKER, "1", delete=[THROTTLE])
    wait_until(lambda: not admin.log_dirs.moves(), "the move ends")
    assert home_of(admin, partition) == target
    assert numbers(node, "killed", 0) == list(range(0, 200, 2))


def test_what_cannot_be_moved(cli: CommandLine, admin: Admin, disks: list[str]) -> None:
    admin.topics.create("stays")
    with pytest.raises(KafkaError) as caught:
        admin.log_dirs.move(1, {TopicPartition("stays", 0): "/not/there"})
    assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    with pytest.raises(KafkaError) as caught:
        admin.log_dirs.move(1, {TopicPartition("not-there", 0): disks[0]})
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "say where to" in cli("log-dirs", "move", "stays", "--broker", "1").err
    assert "has no such partition" in cli("log-dirs", "move", "not-there", "--broker", "1", "--to", disks[0]).err
    assert (
        "by their numbers" in cli("log-dirs", "move", "stays", "--broker", "1", "--to", "/x", "--partitions", "a").err
    )


def test_directories_given_by_relative_paths_are_told_as_absolute_ones(tmp_path: Path) -> None:
    """Kafka does, and its tools compare paths."""
    relative = os.path.relpath(tmp_path / "data")
    with start_node(tmp_path / "node", properties={"log.dirs": relative}) as node, Admin(node.bootstrap) as admin:
        (directory,) = admin.log_dirs.describe()
        assert os.path.isabs(directory.path)
