from __future__ import annotations

from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE
from penstock.metadata.index import PartitionIndex
from penstock.metadata.topics import TopicsImage
from penstock.protocol.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.simulator.stories.controller_world import World


def a_world() -> World:
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=True)
    world.assign("orders", (1, 2))
    world.assign("payments", (2, 3))
    return world


def content(index: PartitionIndex) -> object:
    """Whatever can be asked, but for the order."""
    return (
        {broker_id: set(index.in_sync(broker_id)) for broker_id in range(10)},
        {broker_id: set(index.eligible(broker_id)) for broker_id in range(10)},
        {broker_id: index.leads(broker_id) for broker_id in range(10)},
        set(index.leaderless),
        set(index.not_preferred),
        set(index.reassigning),
        set(index.with_eligible()),
    )


def test_an_index_answers_by_broker() -> None:
    world = a_world()
    index = PartitionIndex.of(world.image.topics)
    orders, payments = (world.image.topics.id_of(name) for name in ("orders", "payments"))
    assert list(index.in_sync(2)) == [(orders, 0), (payments, 0)]
    assert (index.leads(1), index.leads(2), index.leads(3)) == (1, 1, 0)
    assert not index.leaderless and not index.not_preferred and not index.reassigning and not index.any_eligible
    world.fence(1)
    world.fence(2)
    world.reassign("payments", (1, 3))
    index = PartitionIndex.of(world.image.topics)
    assert list(index.leaderless) == [(orders, 0)]
    assert set(index.not_preferred) == {(orders, 0), (payments, 0)}
    assert list(index.reassigning) == [(payments, 0)]
    assert set(index.eligible(2)) == {(orders, 0), (payments, 0)}
    assert index.any_eligible


def test_an_index_moves_from_any_image_to_any_other() -> None:
    world = a_world()
    images = [EMPTY_IMAGE.topics, world.image.topics]
    world.fence(2)
    world.reassign("payments", (1, 3))
    images.append(world.image.topics)
    world.delete("orders")
    world.create("more", partitions=3, replication_factor=2)
    images.append(world.image.topics)
    for before in images:
        for after in images:
            index = PartitionIndex.of(before)
            index.move(before, after)
            assert content(index) == content(PartitionIndex.of(after))


def test_what_comes_and_goes_in_one_delta_leaves_no_trace() -> None:
    world = a_world()
    index = PartitionIndex.of(world.image.topics)
    before = content(index)
    delta = MetadataDelta(world.image)
    delta.replay(TopicRecord(name="brief", topic_id=b"b" * 16))
    delta.replay(world.partition("orders").to_record(b"b" * 16, 0))
    delta.replay(RemoveTopicRecord(topic_id=b"b" * 16))
    after = delta.apply(99, 1, 1)
    index.apply(delta, after.topics)
    assert content(index) == before


def test_a_delta_says_exactly_which_partitions_changed() -> None:
    world = a_world()
    world.create("wide", partitions=4, replication_factor=2)
    wide, orders = world.image.topics.id_of("wide"), world.image.topics.id_of("orders")
    assert wide is not None and orders is not None
    delta = MetadataDelta(world.image)
    delta.replay(PartitionChangeRecord(topic_id=wide, partition_id=2, isr=[1]))
    assert delta.changed_partitions == {wide: {2}}
    delta.replay(PartitionChangeRecord(topic_id=orders, partition_id=0, eligible_leader_replicas=[2], isr=[1]))
    after = delta.apply(9, 1, 1)
    cleared = MetadataDelta(after)
    cleared.replay(ClearElrRecord())
    assert cleared.changed_partitions == {orders: {0}}
    image = cleared.apply(10, 1, 1)
    partition = image.topics.partition("orders", 0)
    assert partition is not None and (partition.elr, partition.partition_epoch) == ((), 2)


def test_an_empty_index() -> None:
    index = PartitionIndex.of(TopicsImage())
    assert content(index) == content(PartitionIndex())
