"""A live group of librdkafka consumers moves from the classic protocol to the consumer protocol and back, one member
after the other, as a rolling restart of a service with a new `group.protocol` does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clients.group_members import KINDS, NewMember
from clients.live_group import PROPERTIES, Group
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import RunningNode, start_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("migration") / "node", properties=PROPERTIES) as node:
        yield node


def type_of(node: RunningNode, group: Group) -> str:
    with Admin(node.bootstrap, timeout=20) as admin:
        (listing,) = [entry for entry in admin.groups.list() if entry.group_id == group.name]
    return listing.type


def roll(group: Group, successor: NewMember) -> None:
    """A successor of the other kind joins, so that the others must give something up; then a member leaves."""
    for _ in range(len(group.members)):
        group.join_as(successor)
        group.settle()
        group.members.pop(0).leave()
        group.settle()
        group.send(12)
        group.read_all()


@pytest.mark.parametrize("classic", ["confluent", "confluent-cooperative"])
def test_to_the_consumer_protocol_and_back(node: RunningNode, classic: str) -> None:
    group = Group(node.bootstrap, KINDS[classic])
    group.join(2)
    group.settle()
    group.send(12)
    group.read_all()
    assert type_of(node, group) == "classic"
    roll(group, KINDS["confluent-consumer-protocol"])
    assert type_of(node, group) == "consumer"
    roll(group, KINDS[classic])
    assert type_of(node, group) == "classic"
    group.end()
