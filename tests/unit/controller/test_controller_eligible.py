"""Eligible leader replicas as a feature: turning it on and off, and `min.insync.replicas` under it."""

from __future__ import annotations

import pytest

from penstock.controller.features import UpgradeType
from penstock.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from penstock.metadata.image import ResourceType
from penstock.metadata.partition import NO_LEADER
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.protocol.messages.metadata_records import ClearElrRecord, FeatureLevelRecord
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.simulator.stories.controller_world import World, bootstrap

MIN_INSYNC_REPLICAS = "min.insync.replicas"


def update(world: World, level: int) -> int:
    kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
    key = FeatureUpdateKey(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, max_version_level=level, upgrade_type=kind)
    response = world.do(world.controller.update_features(UpdateFeaturesRequest(feature_updates=[key])))
    return int(response.error_code)


def below_the_minimum(brokers: int = 3) -> World:
    """Topic `led` has a leader and an eligible replica, topic `waiting` has eligible replicas alone."""
    world = World({MIN_INSYNC_REPLICAS: "2"}, brokers=brokers, elr=True)
    world.assign("led", (1, 2))
    world.assign("waiting", (3, 2))
    world.fence(2)
    world.fence(3)
    assert (world.partition("led").isr, world.partition("led").elr) == ((1,), (2,))
    assert (world.partition("waiting").isr, set(world.partition("waiting").elr)) == ((), {2, 3})
    return world


def test_a_new_cluster_with_it_says_the_minimum_for_all() -> None:
    world = World({MIN_INSYNC_REPLICAS: "2"}, brokers=0, elr=True)
    assert world.image.features[ELIGIBLE_LEADER_REPLICAS_VERSION] == 1
    assert world.image.config(ResourceType.BROKER, "") == {MIN_INSYNC_REPLICAS: "2"}
    without = World(brokers=0, elr=False)
    assert without.image.configs == {}


def test_a_controller_that_takes_over_writes_no_beginning() -> None:
    world = World(elr=True)
    result = world.controller.activate(bootstrap(elr=True))
    assert result.records == []


def test_turning_it_on_makes_brokers_agree() -> None:
    world = World({MIN_INSYNC_REPLICAS: "3"}, brokers=2, elr=False)
    assert world.set_broker_config("1", MIN_INSYNC_REPLICAS, "1") == ErrorCode.NONE
    assert update(world, 1) == ErrorCode.NONE
    assert world.image.config(ResourceType.BROKER, "") == {MIN_INSYNC_REPLICAS: "3"}
    assert world.image.config(ResourceType.BROKER, "1") == {}
    assert world.set_broker_config("1", MIN_INSYNC_REPLICAS, "1") == ErrorCode.INVALID_CONFIG
    assert world.set_broker_config("", MIN_INSYNC_REPLICAS, None) == ErrorCode.INVALID_CONFIG
    assert world.set_broker_config("", MIN_INSYNC_REPLICAS, "2") == ErrorCode.NONE


def test_turning_it_off_is_refused_while_a_partition_has_nothing_else() -> None:
    world = below_the_minimum()
    assert update(world, 0) == ErrorCode.INVALID_UPDATE_VERSION
    world.unfence(3)
    assert update(world, 0) == ErrorCode.NONE
    assert world.partition("led").elr == () and world.partition("waiting").elr == ()
    world.fence(1)
    assert world.partition("led").isr == (1,)  # as without the feature


def test_another_minimum_for_a_topic_ends_eligibility_there() -> None:
    world = below_the_minimum()
    world.set_config("led", MIN_INSYNC_REPLICAS, "1")
    assert isinstance(world.batches[-1][-1], ClearElrRecord)
    assert world.partition("led").elr == ()
    assert len(world.partition("waiting").elr) == 2


def test_another_minimum_for_all_ends_eligibility_except_where_nobody_leads() -> None:
    world = below_the_minimum()
    assert world.set_broker_config("", MIN_INSYNC_REPLICAS, "1") == ErrorCode.NONE
    assert world.partition("led").elr == ()
    assert len(world.partition("waiting").elr) == 2
    world.unfence(2)
    assert world.partition("waiting").leader == 2


@pytest.mark.parametrize("everywhere", [True, False])
def test_another_minimum_does_not_forget_who_led_last(everywhere: bool) -> None:
    """A partition whose last leader has crashed has nothing else."""
    world = World({MIN_INSYNC_REPLICAS: "2"}, brokers=3, elr=True)
    world.assign("orders", (1, 2))
    world.fence(2)
    second = CreatePartitionsTopic(name="orders", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[3, 2])])
    world.do(world.controller.create_partitions(CreatePartitionsRequest(topics=[second])))
    world.register(3, incarnation=2)
    partition = world.partition("orders", 1)
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (), (3,))
    if everywhere:
        world.set_broker_config("", MIN_INSYNC_REPLICAS, "1")
    else:
        world.set_config("orders", MIN_INSYNC_REPLICAS, "1")
    assert world.partition("orders", 0).elr == ()
    world.unfence(3)
    assert world.partition("orders", 1).leader == 3


def test_another_minimum_for_all_in_one_record_where_all_are_led() -> None:
    world = below_the_minimum()
    world.unfence(3)
    world.set_broker_config("", MIN_INSYNC_REPLICAS, "1")
    assert [record for record in world.batches[-1] if isinstance(record, ClearElrRecord)] == [ClearElrRecord()]
    assert world.partition("led").elr == world.partition("waiting").elr == ()


def test_other_settings_change_nothing_about_it() -> None:
    world = below_the_minimum()
    world.set_config("led", "retention.ms", "1000")
    assert world.partition("led").elr == (2,)


def test_the_minimum_is_never_more_than_the_replicas() -> None:
    world = World({MIN_INSYNC_REPLICAS: "3"}, brokers=2, elr=True)
    world.assign("orders", (1, 2))
    world.fence(2)
    assert world.partition("orders").elr == (2,)
    alone = World({MIN_INSYNC_REPLICAS: "3"}, brokers=2, elr=True)
    alone.assign("orders", (1,))
    alone.fence(1)
    assert (alone.partition("orders").elr, alone.partition("orders").leader) == ((1,), NO_LEADER)


@pytest.mark.parametrize("elr", [False, True])
def test_a_controller_that_takes_over_finishes_elections(elr: bool) -> None:
    """The one before wrote that a broker is back, and died before it gave it its partitions."""
    world = World(brokers=2, elr=elr)
    world.create("orders", partitions=3)
    world.fence(1)
    world.commit(world.controller.unfence_broker(1, world.epoch(1)).records[:1])
    leaderless = [index for index in range(3) if world.partition("orders", index).leader == NO_LEADER]
    assert leaderless
    world.run(lambda controller: controller.activate([FeatureLevelRecord(name="ignored", feature_level=1)]))
    assert all(world.partition("orders", index).leader != NO_LEADER for index in range(3))
