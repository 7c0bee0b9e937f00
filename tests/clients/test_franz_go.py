"""franz-go, the client of the Go world: records, consumer groups of both protocols, share groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from clients import contract
from clients.drivers import Record
from clients.drivers.franz_go import Acquired, FranzGo, ShareMember, why_not_built
from clients.drivers.process import ProcessMember
from clients.group_members import Member
from clients.live_group import PROPERTIES, Group, unique
from penstock import Admin, ResourceType
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

RECORDS = 300


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[FranzGo]:
    with closing(FranzGo(bootstrap)) as client:
        yield client


class TestProducing(contract.Producing): ...


class TestCompression(contract.Compression): ...


class TestPipelining(contract.Pipelining): ...


class TestReading(contract.Reading): ...


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    if reason := why_not_built():
        pytest.skip(reason)
    properties = {
        **PROPERTIES,
        "group.share.min.heartbeat.interval.ms": "200",
        "group.share.heartbeat.interval.ms": "200",
    }
    with start_node(tmp_path_factory.mktemp("franz-go") / "node", properties=properties) as node:
        yield node


@pytest.fixture(scope="module")
def of_node(node: RunningNode) -> Iterator[FranzGo]:
    with closing(FranzGo(node.bootstrap)) as client:
        yield client


def member_of(client: FranzGo, protocol: str, _: str, group: str, topic: str) -> Member:
    return ProcessMember(client, group, topic, {"protocol": protocol})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_consumer_group_come_and_go(node: RunningNode, of_node: FranzGo, protocol: str) -> None:
    Group(node.bootstrap, partial(member_of, of_node, protocol)).come_and_go()


def test_members_of_a_share_group_settle_each_record(node: RunningNode, of_node: FranzGo) -> None:
    """A third is released at first, a fifth of the rest rejected."""
    name = unique("work")
    with Admin(node.bootstrap) as admin:
        admin.topics.create(name, partitions=2)
        admin.configs.alter(ResourceType.GROUP, name, {"share.auto.offset.reset": "earliest"})
    sent = [Record(None, b"%d" % number, partition=number % 2) for number in range(RECORDS)]
    of_node.produce(name, sent)
    members = [ShareMember(of_node, name, name) for _ in range(2)]
    attempts: Counter[int] = Counter()
    settled: Counter[int] = Counter()

    def decide(record: Acquired) -> str:
        number = int(record.value)
        attempts[number] += 1
        assert record.delivery_count == attempts[number]
        if number % 3 == 0 and attempts[number] == 1:
            return "release"
        settled[number] += 1
        return "reject" if number % 5 == 0 else "accept"

    def work() -> bool:
        for member in members:
            member.decide([(record, decide(record)) for record in member.acquire()])
        return len(settled) == RECORDS

    wait_until(work)
    assert set(settled.values()) == {1}
    assert {number for number, count in attempts.items() if count == 2} == set(range(0, RECORDS, 3))
    for member in members:
        member.leave()
