"""`penstock share-groups` and `penstock consume --share` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from penstock import Admin, Producer, ShareConsumer
from penstock.testing.nodes import RunningNode

if TYPE_CHECKING:
    from conftest import CommandLine


@pytest.fixture
def topic(broker: RunningNode, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("queue")
    with Admin(broker.bootstrap) as admin:
        admin.topics.create(name, partitions=1)
    with Producer(broker.bootstrap) as producer:
        for number in range(3):
            producer.send(name, b"%d" % number, key=b"k", headers={"h": b"x"})
    return name


def test_a_queue_from_its_first_record_to_its_deletion(
    broker: RunningNode, cli: CommandLine, topic: str, unique_topic: Callable[[str], str]
) -> None:
    group = unique_topic("workers")
    at = ("--bootstrap-server", broker.bootstrap)
    moved = ("share-groups", "reset-offsets", group, "--topic", topic, "--to-earliest", *at)
    shown = cli(*moved)
    assert "dry run" in shown.err
    assert group not in cli("share-groups", "list", "--names", *at).out.split()
    assert cli(*moved, "--execute").out.split()[-4:] == [topic, "0", "-", "0"]
    assert group in cli("share-groups", "list", "--names", *at).out.split()
    assert group in cli("groups", "list", "--type", "share", "--names", *at).out.split()

    first = cli("consume", topic, "--group", group, "--share", "-n", "1", "--format", "%k %v %h", *at)
    assert first.out == "k 0 h=x\n"
    rest = cli("consume", topic, "--group", group, "--share", "--timeout", "1", "--json", *at)
    assert [json.loads(line)["value"] for line in rest.out.splitlines()] == ["1", "2"]

    described = cli("share-groups", "describe", group, *at).out
    assert f"{group}  share group, Empty, 0 members" in described
    assert described.split()[-4:-2] == [topic, "0"]
    assert described.split()[-1] == "0"
    with ShareConsumer(broker.bootstrap, topic, group=group):
        (one,) = json.loads(cli("share-groups", "describe", group, "--json", *at).out)
        assert (one["state"], len(one["members"])) == ("Stable", 1)
        refused = cli(*moved, "--execute")
        assert refused.status == 1
        assert "while it has members; stop them first: penstock on 127.0.0.1" in refused.err
        assert cli("share-groups", "delete", group, *at).status == 1
    assert cli("share-groups", "delete", group, *at).out == f"deleted {group}\n"
    assert cli("share-groups", "delete", group, *at).status == 1
    assert cli("share-groups", "delete", group, "--if-exists", *at).status == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("consume", "t", "--share"), "--share needs the name of a share group"),
        (("consume", "t", "--share", "--group", "g", "--from-beginning"), "--share goes with"),
        (("share-groups", "reset-offsets", "g", "--topic", "t"), "say where to"),
        (("share-groups", "reset-offsets", "g", "--to-latest"), "say in which partitions"),
    ],
)
def test_what_contradicts_itself(cli: CommandLine, arguments: tuple[str, ...], reason: str) -> None:
    result = cli(*arguments)
    assert result.status != 0
    assert reason in result.err
