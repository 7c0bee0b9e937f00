from __future__ import annotations

import pytest

from controller_world import World, registration
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest


def refused(world: World, request: object, **options: bool) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.controller.register_broker(request, **options)  # type: ignore[arg-type]
    return caught.value.code


def test_a_broker_registers_fenced_and_its_epoch_is_the_offset_of_that() -> None:
    world = World(brokers=0)
    response = world.do(world.controller.register_broker(registration(1, rack="a")))
    broker = world.image.brokers[1]
    assert broker.fenced and not broker.active
    assert broker.epoch == response.broker_epoch == world.offset
    assert (broker.rack, broker.endpoints["PLAINTEXT"].host) == ("a", "host-1")
    world.do(world.controller.unfence_broker(1, broker.epoch))
    assert world.image.brokers[1].active
    assert world.controller.unfence_broker(1, broker.epoch).records == []


def test_a_restart_is_a_new_epoch_of_everything_the_broker_leads() -> None:
    world = World()
    world.create("orders", partitions=2)
    before = world.image.brokers[1].epoch
    world.do(world.controller.register_broker(registration(1, incarnation=2)))
    topic = world.image.topics.by_name("orders")
    assert topic is not None
    assert all(partition.leader == NO_LEADER and partition.isr == (1,) for partition in topic.partitions.values())
    broker = world.image.brokers[1]
    assert broker.epoch > before
    with pytest.raises(KafkaError) as caught:
        world.controller.unfence_broker(1, before)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    world.do(world.controller.unfence_broker(1, broker.epoch))
    topic = world.image.topics.by_name("orders")
    assert topic is not None
    assert all(partition.leader == 1 and partition.leader_epoch == 2 for partition in topic.partitions.values())


def test_the_same_incarnation_keeps_its_epoch() -> None:
    world = World()
    epoch = world.image.brokers[1].epoch
    assert world.do(world.controller.register_broker(registration(1), session_alive=True)).broker_epoch == epoch
    assert not world.image.brokers[1].fenced


def test_a_broker_that_goes_hands_over_to_the_in_sync_replicas() -> None:
    world = World(brokers=3)
    world.create("orders", partitions=6, replication_factor=3)
    world.do(world.controller.fence_broker(2, world.image.brokers[2].epoch))
    topic = world.image.topics.by_name("orders")
    assert topic is not None
    for partition in topic.partitions.values():
        assert 2 not in partition.isr and len(partition.isr) == 2
        assert partition.leader in partition.isr
        assert partition.leader_epoch == (1 if partition.replicas[0] == 2 else 0)
        assert partition.partition_epoch == 1
    assert world.controller.fence_broker(2, world.image.brokers[2].epoch).records == []


def test_registrations_that_are_refused() -> None:
    world = World(brokers=2)
    assert refused(world, registration(3, cluster_id="other")) is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refused(world, registration(1, incarnation=9), session_alive=True) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    request = registration(3)
    request.log_dirs = []
    assert refused(world, request) is ErrorCode.INVALID_REGISTRATION
    request.log_dirs = [bytes(16)]
    assert refused(world, request) is ErrorCode.INVALID_REGISTRATION
    request.log_dirs = [b"d" * 16, b"d" * 16]
    assert refused(world, request) is ErrorCode.INVALID_REGISTRATION
    request.log_dirs = list(world.image.brokers[1].directories)
    assert refused(world, request) is ErrorCode.INVALID_REGISTRATION
    request = registration(3)
    request.features = []
    assert refused(world, request) is ErrorCode.INVALID_REGISTRATION
    request = registration(3)
    for feature in request.features:
        feature.max_supported_version = feature.min_supported_version
    assert refused(world, request) is ErrorCode.UNSUPPORTED_VERSION


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    world = World(brokers=2)
    starts = []
    for broker_id in (1, 2, 1):
        epoch = world.image.brokers[broker_id].epoch
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
        response = world.do(world.controller.allocate_producer_ids(request))
        assert response.producer_id_len == 1000
        starts.append(response.producer_id_start)
    assert starts == [0, 1000, 2000]
    with pytest.raises(KafkaError) as caught:
        world.controller.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1, broker_epoch=0))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
