from __future__ import annotations

import pytest

from penstock.controller.elections import RECOVERING, Election
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.simulator.stories.controller_world import World


def restarted(brokers: int = 3) -> World:
    """Everything that broker 1 led is led by others, and broker 1 is in sync again."""
    world = World(brokers=brokers)
    world.create("orders", partitions=6, replication_factor=3)
    world.fence(1)
    world.unfence(1)
    for partition_id in range(6):
        world.alter("orders", (*world.partition("orders", partition_id).isr, 1), partition_id)
    return world


def leaders(world: World, name: str = "orders") -> dict[int, int]:
    topic = world.image.topics.by_name(name)
    assert topic is not None
    return {index: partition.leader for index, partition in topic.partitions.items()}


def preferred(world: World, name: str = "orders") -> dict[int, int]:
    topic = world.image.topics.by_name(name)
    assert topic is not None
    return {index: partition.replicas[0] for index, partition in topic.partitions.items()}


def test_preferred_leaders_one_by_one() -> None:
    world = restarted()
    moved = [index for index, first in preferred(world).items() if first == 1]
    kept = [index for index, first in preferred(world).items() if first != 1]
    assert len(moved) == 2
    results = world.elect(Election.PREFERRED, ("orders", moved[0]), ("orders", kept[0]), ("orders", 99), ("no", 0))
    assert results == {
        ("orders", moved[0]): ErrorCode.NONE,
        ("orders", kept[0]): ErrorCode.ELECTION_NOT_NEEDED,
        ("orders", 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert leaders(world)[moved[0]] == 1 and leaders(world)[moved[1]] != 1


def test_preferred_leaders_of_all_partitions() -> None:
    world = restarted()
    assert set(world.elect(Election.PREFERRED).values()) == {ErrorCode.NONE}
    assert leaders(world) == preferred(world)
    assert world.elect(Election.PREFERRED) == {}


def test_a_preferred_leader_that_is_not_in_sync_is_not_available() -> None:
    world = World(brokers=2)
    world.assign("orders", (1, 2))
    world.fence(1)
    assert world.elect(Election.PREFERRED, ("orders", 0)) == {("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    world.unfence(1)
    assert world.elect(Election.PREFERRED, ("orders", 0)) == {("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert world.partition("orders").leader == 2


@pytest.mark.parametrize("elr", [False, True])
def test_unclean_elections_on_demand(elr: bool) -> None:
    world = World(brokers=3, elr=elr)
    world.assign("orders", (1, 2))
    assert world.elect(Election.UNCLEAN, ("orders", 0)) == {("orders", 0): ErrorCode.ELECTION_NOT_NEEDED}
    world.alter("orders", (1,))
    world.fence(1)
    assert world.partition("orders").leader == NO_LEADER
    assert world.elect(Election.UNCLEAN) == {("orders", 0): ErrorCode.NONE}
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), RECOVERING)
    world.fence(2)
    assert world.elect(Election.UNCLEAN) == {("orders", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_an_unknown_kind_of_election_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        World().controller.elect_leaders(ElectLeadersRequest(election_type=5))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_partition_named_twice_is_elected_once() -> None:
    world = restarted()
    index = next(index for index, first in preferred(world).items() if first == 1)
    before = world.partition("orders", index).leader_epoch
    assert world.elect(Election.PREFERRED, ("orders", index), ("orders", index)) == {
        ("orders", index): ErrorCode.ELECTION_NOT_NEEDED
    }
    assert world.partition("orders", index).leader_epoch == before + 1


def test_balancing_brings_leadership_back_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.controller.leaders.MAX_CHANGES_PER_BATCH", 1)
    world = restarted()
    steps = 0
    while world.do(world.controller.balance_leaders()):
        steps += 1
    assert steps == 2
    assert leaders(world) == preferred(world)
    assert world.controller.balance_leaders().records == []


def test_balancing_leaves_alone_what_cannot_be_helped() -> None:
    world = World(brokers=2)
    world.assign("orders", (1, 2))
    world.fence(1)
    world.unfence(1)
    result = world.controller.balance_leaders()
    assert (result.records, result.response) == ([], False)


def test_unclean_leaders_where_topics_come_to_allow_it() -> None:
    world = World(brokers=2)
    world.assign("never", (1, 2))
    world.assign("always", (1, 2))
    for name in ("never", "always"):
        world.alter(name, (1,))
    world.fence(1)
    assert world.controller.elect_unclean_leaders().records == []
    world.set_config("always", "unclean.leader.election.enable", "true")
    assert world.do(world.controller.elect_unclean_leaders()) is False
    assert (world.partition("always").leader, world.partition("never").leader) == (2, NO_LEADER)
