"""Consumer groups with real clients: members come and go, every record is read, and commits outlive everybody."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from drivers import DEADLINE_S
from group_members import KINDS, Member, NewMember, Read

from penstock.client.admin import Admin
from penstock.testing.nodes import RunningNode, start_node

PARTITIONS = 6

# As fast as can be, so that tests need not wait for what people have to.
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("groups") / "node", properties=PROPERTIES) as node:
        yield node


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> NewMember:
    return KINDS[request.param]


_numbers = itertools.count()


class Group:
    """A topic, the group that reads it, and what everybody in it has read."""

    def __init__(self, bootstrap: str, kind: NewMember) -> None:
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.members: list[Member] = []
        self.read: list[Read] = []
        self._bootstrap = bootstrap
        self._kind = kind
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._sent = 0
        with Admin(bootstrap, timeout=DEADLINE_S) as admin:
            admin.topics.create(self.topic, partitions=PARTITIONS, replication_factor=1)

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, str(self._sent).encode(), partition=self._sent % PARTITIONS)
            self._sent += 1
        assert self._producer.flush(DEADLINE_S) == 0

    def join(self, count: int = 1) -> None:
        for _ in range(count):
            self.members.append(self._kind(self._bootstrap, self.name, self.topic))

    def leave(self, count: int = 1) -> None:
        for _ in range(count):
            self.members.pop().leave()

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {[member.assignment() for member in self.members]}"
            for member in self.members:
                self.read += member.poll()

    def settle(self, working: int | None = None) -> None:
        """Until every partition is somebody's, nobody's twice, and so many members have some."""
        wanted = len(self.members) if working is None else working

        def settled() -> bool:
            assigned = [member.assignment() for member in self.members]
            everything = sorted(itertools.chain(*assigned))
            return everything == list(range(PARTITIONS)) and len(list(filter(None, assigned))) == wanted

        self.poll_until(settled, "the partitions are not divided")

    def read_all(self) -> None:
        self.poll_until(lambda: len(self.values) == self._sent, "not everything was read")

    @property
    def values(self) -> set[int]:
        return {int(each.value) for each in self.read}

    def commit(self) -> None:
        for member in self.members:
            member.commit()

    def end(self) -> None:
        self.leave(len(self.members))


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
