"""Consumer groups with real clients: members come and go, every record is read, and commits outlive everybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.group_members import KINDS, AioKafka, NewMember
from clients.live_group import PARTITIONS, PROPERTIES, Group
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("groups") / "node", properties=PROPERTIES) as node:
        yield node


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> NewMember:
    return KINDS[request.param]


@pytest.fixture
def group(node: RunningNode, kind: NewMember) -> Iterator[Group]:
    group = Group(node.bootstrap, kind)
    yield group
    group.end()


def test_who_comes_back_goes_on_where_it_was(group: Group) -> None:
    group.send(60)
    group.join()
    group.read_all()
    assert len(group.read) == 60
    group.commit()
    group.leave()
    group.send(30)
    group.join()
    group.read_all()
    assert len(group.read) == 90  # each once


def test_members_come_and_go(group: Group) -> None:
    group.send(60)
    group.join()
    group.settle()
    group.join()
    group.settle()
    group.join()
    group.settle()
    group.send(60)
    group.read_all()
    group.commit()
    group.leave(2)
    group.settle()
    group.send(60)
    group.read_all()


def test_commits_outlive_a_crash_of_the_broker(tmp_path: Path, kind: NewMember) -> None:
    with start_node(tmp_path / "node", properties=PROPERTIES) as node:
        group = Group(node.bootstrap, kind)
        group.join(2)
        group.settle()
        group.send(60)
        group.read_all()
        group.commit()
        before = len(group.read)
        node.kill()
        node.start()
        group.send(60)
        group.settle()
        group.read_all()
        again = [each for each in group.read[before:] if int(each.value) < 60]
        assert again == [], "what was committed was read again"
        group.end()


@pytest.mark.parametrize("name", ["confluent", "confluent-consumer-protocol"])
def test_surplus_members_idle_and_step_in(node: RunningNode, name: str) -> None:
    group = Group(node.bootstrap, KINDS[name])
    group.join(PARTITIONS + 2)
    group.settle(working=PARTITIONS)
    group.leave(3)
    group.settle(working=PARTITIONS - 1)
    group.send(60)
    group.read_all()
    group.end()


def test_aiokafka_leaves_while_a_fetch_waits_to_be_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start_node(tmp_path, properties=PROPERTIES) as node:
        group = Group(node.bootstrap, AioKafka)
        group.send(6)
        group.join()
        group.read_all()
        node.kill()
        wait_until(lambda: "Failed fetch messages" in caplog.text, "a fetch that has failed")
        group.leave()
