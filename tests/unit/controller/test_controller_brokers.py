from __future__ import annotations

import itertools

import pytest

from penstock.controller.elections import RECOVERING
from penstock.controller.result import Unfinished
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.simulator.stories.controller_world import World, registration


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
    assert all(partition.leader == NO_LEADER for partition in topic.partitions.values())
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


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_crash_costs_a_broker_its_place_even_if_nobody_noticed() -> None:
    """It was back before its session ended: still in sync by the metadata, but not to be trusted."""
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=True)
    world.assign("orders", (1, 2, 3))
    world.register(1, incarnation=2)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2, 3), ())


def test_a_clean_stop_keeps_a_broker_eligible_and_a_crash_does_not() -> None:
    for clean in (True, False):
        world = World({"min.insync.replicas": "2"}, brokers=2, elr=True)
        world.assign("orders", (1, 2))
        world.fence(1)
        assert (world.partition("orders").isr, world.partition("orders").elr) == ((2,), (1,))
        world.start_broker(1, incarnation=2, clean=clean)
        world.fence(2)
        partition = world.partition("orders")
        if clean:
            assert (partition.leader, partition.isr, partition.elr) == (1, (1,), (2,))
        else:
            assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (2,))


def test_an_epoch_that_is_not_the_last_one_is_no_clean_stop() -> None:
    world = World({"min.insync.replicas": "2"}, brokers=2, elr=True)
    world.assign("orders", (1, 2))
    world.fence(1)
    request = registration(1, incarnation=2)
    request.previous_broker_epoch = world.epoch(1) - 1
    world.do(world.controller.register_broker(request))
    assert world.partition("orders").elr == ()


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_everyone_is_killed_and_comes_back(order: tuple[int, ...]) -> None:
    """The last leader leads again, in whatever order they return: it has all that was acknowledged."""
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=True)
    world.assign("orders", (1, 2, 3))
    for broker_id in (1, 2, 3):
        world.fence(broker_id)
    assert (world.partition("orders").elr, world.partition("orders").last_known_elr) == ((2, 3), (3,))
    for broker_id in order:
        world.start_broker(broker_id, incarnation=2)
        assert world.partition("orders").leader in (NO_LEADER, 3)
    partition = world.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (3, (3,), RECOVERING)


def test_a_replication_factor_of_one_survives_a_kill() -> None:
    for elr in (False, True):
        world = World(elr=elr)
        world.create("orders", partitions=2)
        world.start_broker(1, incarnation=2)
        for index in range(2):
            partition = world.partition("orders", index)
            assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)


def fenced(world: World, broker_id: int) -> bool:
    return world.image.brokers[broker_id].fenced


def test_a_broker_with_many_partitions_goes_and_comes_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done to it in between, it ends as if it had been done at once."""
    monkeypatch.setattr("penstock.controller.leaders.MAX_CHANGES_PER_BATCH", 3)
    world = World({"min.insync.replicas": "2"}, brokers=3, elr=True)
    world.create("orders", partitions=10, replication_factor=3)
    epoch = world.epoch(1)
    first = world.controller.fence_broker(1, epoch)
    assert isinstance(first, Unfinished) and len(first.records) == 3
    world.commit(first.records)
    assert not fenced(world, 1)
    # A leader that does not know yet takes it in again.
    index = next(i for i in range(10) if 1 not in world.partition("orders", i).isr)
    assert world.alter("orders", (*world.partition("orders", index).isr, 1), index).error_code == ErrorCode.NONE
    world.fence(1)
    assert fenced(world, 1)
    assert all(1 not in world.partition("orders", index).isr for index in range(10))
    for broker_id in (2, 3):
        world.fence(broker_id)
    assert all(world.partition("orders", index).leader == NO_LEADER for index in range(10))
    world.start_broker(3, incarnation=2, clean=True)
    assert all(world.partition("orders", index).leader == 3 for index in range(10))
    world.register(3, incarnation=3)
    assert all(world.partition("orders", index).isr == () for index in range(10))
    assert all(world.partition("orders", index).elr == (2,) for index in range(10))
    assert max(map(len, world.batches[-12:])) <= 4


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
