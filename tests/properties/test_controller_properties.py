"""The controller against its own records: whatever is asked of it, the image is the replay of what it wrote."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.configs import ConfigOperation
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from penstock.metadata.partition import NO_LEADER
from penstock.metadata.serde import decode_record, encode_record
from penstock.metadata.snapshot import QuorumConfiguration, decode_snapshot, encode_snapshot
from penstock.metadata.topics import collision_key
from penstock.model.errors import KafkaError
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.simulator.stories.controller_world import World, registration
from property_examples import examples

Step = Callable[[World], None]

NAMES = st.sampled_from(["a", "b.c", "b_c", "b-c", "", "x/y", "d_e", "d.e", "__cluster_metadata"])
BROKERS = st.integers(1, 4)
CONFIGS = st.sampled_from(
    [
        ("retention.ms", "5"),
        ("retention.ms", "x"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("segment.bytes", "1048576"),
        ("max.connections", "3"),
        ("no.such", "1"),
    ]
)


def create(name: str, partitions: int, factor: int, configs: list[tuple[str, str]]) -> Step:
    given_configs = {key.replace(".", "_"): value for key, value in configs}
    return lambda world: world.create(name, partitions, factor, **given_configs) and None


def delete(name: str | None, by_id: bool) -> Step:
    def step(world: World) -> None:
        topic_id = world.image.topics.id_of(name or "") if by_id else None
        state = DeleteTopicState(name=None if topic_id else name, topic_id=topic_id or ZERO_UUID)
        world.do(world.controller.delete_topics(DeleteTopicsRequest(topics=[state])))

    return step


def add_partitions(name: str, count: int) -> Step:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
    return lambda world: world.do(world.controller.create_partitions(request)) and None


def alter(resource: tuple[int, str], operation: int, config: tuple[str, str]) -> Step:
    wanted = AlterConfigsResource(
        resource_type=resource[0],
        resource_name=resource[1],
        configs=[AlterableConfig(name=config[0], config_operation=operation, value=config[1])],
    )
    request = IncrementalAlterConfigsRequest(resources=[wanted])
    return lambda world: world.do(world.controller.incremental_alter_configs(request)) and None


def register(broker_id: int, incarnation: int) -> Step:
    request = registration(broker_id, incarnation=incarnation, rack=f"rack-{broker_id % 2}")
    return lambda world: world.do(world.controller.register_broker(request)) and None


def fencing(broker_id: int, fence: bool) -> Step:
    def step(world: World) -> None:
        broker = world.image.brokers.get(broker_id)
        epoch = broker.epoch if broker else 0
        handler = world.controller.fence_broker if fence else world.controller.unfence_broker
        world.do(handler(broker_id, epoch))

    return step


def allocate(broker_id: int) -> Step:
    def step(world: World) -> None:
        broker = world.image.brokers.get(broker_id)
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker.epoch if broker else 0)
        world.do(world.controller.allocate_producer_ids(request))

    return step


def update_feature(level: int, kind: int) -> Step:
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[update])
    return lambda world: world.do(world.controller.update_features(request)) and None


RESOURCES = st.one_of(
    st.tuples(st.just(ResourceType.TOPIC), NAMES),
    st.tuples(st.just(ResourceType.BROKER), st.sampled_from(["", "1", "9"])),
)
STEPS = st.one_of(
    st.builds(create, NAMES, st.integers(-2, 5), st.integers(-1, 4), st.lists(CONFIGS, max_size=2)),
    st.builds(create, NAMES, st.integers(1, 5), st.integers(1, 3), st.just([])),
    st.builds(delete, NAMES, st.booleans()),
    st.builds(add_partitions, NAMES, st.integers(0, 8)),
    st.builds(alter, RESOURCES, st.sampled_from(ConfigOperation), CONFIGS),
    st.builds(register, BROKERS, st.integers(1, 3)),
    st.builds(fencing, BROKERS, st.booleans()),
    st.builds(allocate, BROKERS),
    st.builds(update_feature, st.integers(24, 31), st.integers(0, 3)),
)


def check_image(image: MetadataImage) -> None:
    assert {topic.name: topic.topic_id for topic in image.topics} == image.topics.names
    for topic_id, topic in image.topics.ids.items():
        assert topic.topic_id == topic_id
        assert sorted(topic.partitions) == list(range(len(topic.partitions))) != []
        for partition in topic.partitions.values():
            assert set(partition.isr) | set(partition.elr) <= set(partition.replicas)
            assert len(partition.directories) == len(partition.replicas) == len(set(partition.replicas))
            assert partition.leader in (NO_LEADER, *partition.isr)
            if partition.leader != NO_LEADER:
                assert image.brokers[partition.leader].active
            assert partition.leader_epoch <= partition.partition_epoch
    keys = [key for topic in image.topics if (key := collision_key(topic.name)) is not None]
    assert len(keys) == len(set(keys)) and set(keys) == set(image.topics.collisions)
    assert all(values for values in image.configs.values())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=40), st.integers(0, 3))
def test_the_image_is_the_replay_of_its_records_and_of_its_snapshot(steps: list[Step], brokers: int) -> None:
    world = World(brokers=brokers)
    for step in steps:
        before, written = world.image, len(world.batches)
        try:
            step(world)
        except KafkaError:
            assert world.image is before
        if len(world.batches) == written:
            assert world.image is before
    check_image(world.image)

    replayed = EMPTY_IMAGE
    for batch in world.batches:
        delta = MetadataDelta(replayed)
        version = replayed.metadata_version or 30
        delta.replay_all([decode_record(encode_record(record, version)) for record in batch])
        replayed = delta.apply(0, 0, 0)
    assert replayed.same_content(world.image)

    snapshot = b"".join(
        encode_snapshot(
            world.image.to_records(),
            metadata_version=world.image.metadata_version,
            quorum=QuorumConfiguration(1, None),
            epoch=1,
            last_contained_timestamp_ms=0,
            now_ms=0,
        )
    )
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(decode_snapshot(snapshot).records)
    restored = delta.apply(0, 0, 0)
    assert restored.same_content(world.image)
    assert [topic.name for topic in restored.topics] == [topic.name for topic in world.image.topics]
