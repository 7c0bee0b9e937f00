from __future__ import annotations

from collections.abc import Sequence

import pytest

from narrowing import present
from penstock.metadata.delta import MetadataDelta, ReplayFailed
from penstock.metadata.difference import delta_between
from penstock.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage, ResourceType
from penstock.metadata.partition import MIGRATING_DIRECTORY, Partition
from penstock.metadata.serde import decode_record, encode_record
from penstock.metadata.unserved import UnservedRecord
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from penstock.security.acls import Acl

ONE, TWO = b"1" * 16, b"2" * 16
HOME = b"h" * 16


def replayed(image: MetadataImage, *records: Message) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return delta.apply(image.offset + len(records), 1, 5)


def partition(topic_id: bytes, index: int, directories: Sequence[bytes] = (HOME, HOME)) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=list(directories),
    )


@pytest.fixture
def image() -> MetadataImage:
    return replayed(
        EMPTY_IMAGE,
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        RegisterBrokerRecord(broker_id=1, broker_epoch=7, log_dirs=[HOME], rack=None),
        TopicRecord(name="a.b", topic_id=ONE),
        partition(ONE, 0),
        partition(ONE, 1),
        TopicRecord(name="c", topic_id=TWO),
        partition(TWO, 0),
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="c", name="retention.ms", value="1"),
    )


def test_a_change_leaves_the_old_image_and_all_else_alone(image: MetadataImage) -> None:
    changed = replayed(image, PartitionChangeRecord(topic_id=ONE, partition_id=1, isr=[2], leader=2))
    assert image.topics.partition("a.b", 1) == Partition((1, 2), (HOME, HOME), (1, 2), 1, 0, 0)
    assert changed.topics.partition("a.b", 1) == Partition((1, 2), (HOME, HOME), (2,), 2, 1, 1)
    assert changed.topics.by_id(TWO) is image.topics.by_id(TWO)
    assert changed.topics.names is image.topics.names
    assert changed.configs is image.configs
    assert changed.brokers is image.brokers
    assert changed.offset == image.offset + 1


def test_a_change_without_a_leader_keeps_the_leader_epoch(image: MetadataImage) -> None:
    changed = replayed(
        image,
        PartitionChangeRecord(topic_id=ONE, partition_id=0, isr=[1]),
        PartitionChangeRecord(
            topic_id=ONE,
            partition_id=0,
            replicas=[1, 2, 3],
            adding_replicas=[3],
            removing_replicas=[2],
            directories=[HOME] * 3,
            eligible_leader_replicas=[2],
            last_known_elr=[2],
            leader_recovery_state=1,
        ),
    ).topics.partition("a.b", 0)
    assert changed is not None
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (1, 0, 2)
    assert (changed.replicas, changed.adding_replicas, changed.removing_replicas) == ((1, 2, 3), (3,), (2,))
    assert (changed.elr, changed.last_known_elr, changed.leader_recovery_state) == ((2,), (2,), 1)
    assert changed.reassigning


def test_the_delta_says_what_changed(image: MetadataImage) -> None:
    delta = MetadataDelta(image)
    delta.replay(RemoveTopicRecord(topic_id=TWO))
    delta.replay(TopicRecord(name="c", topic_id=b"3" * 16))
    delta.replay(PartitionChangeRecord(topic_id=ONE, partition_id=0, leader=-1))
    delta.replay(TopicRecord(name="brief", topic_id=b"4" * 16))
    delta.replay(RemoveTopicRecord(topic_id=b"4" * 16))
    assert delta.removed_topics == {TWO: image.topics.by_id(TWO)}
    assert delta.changed_topics == {b"3" * 16: "c", ONE: "a.b"}
    assert delta.changed_configs == {ConfigResource(ResourceType.TOPIC, "c")}
    after = delta.apply(99, 2, 3)
    assert [topic.name for topic in after.topics] == ["a.b", "c"]
    assert after.topics.id_of("c") == b"3" * 16
    assert after.configs == {}
    assert (after.offset, after.epoch, after.timestamp_ms) == (99, 2, 3)


def test_brokers(image: MetadataImage) -> None:
    changed = replayed(
        image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1, in_controlled_shutdown=1)
    ).brokers[1]
    assert not changed.fenced and changed.in_controlled_shutdown and not changed.active
    assert not replayed(image, UnfenceBrokerRecord(id=1, epoch=7)).brokers[1].fenced
    fenced = replayed(image, UnfenceBrokerRecord(id=1, epoch=7), FenceBrokerRecord(id=1, epoch=7))
    assert fenced.brokers[1].fenced
    moved = replayed(
        image,
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, log_dirs=[ONE, TWO], cordoned_log_dirs=[ONE]),
    ).brokers[1]
    assert moved.directories == (ONE, TWO) and not moved.cordoned
    assert replayed(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=7)).brokers == {}
    assert 3 in replayed(image, RegisterControllerRecord(controller_id=3)).controllers


def test_configs_features_and_producer_ids(image: MetadataImage) -> None:
    changed = replayed(
        image,
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="max.connections", value="1"),
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="c", name="retention.ms", value=None),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="kraft.version", feature_level=1),
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000),
        NoOpRecord(),
    )
    assert changed.configs == {ConfigResource(ResourceType.BROKER, ""): {"max.connections": "1"}}
    assert changed.features == {"metadata.version": 30, "group.version": 1}
    assert changed.next_producer_id == 1000
    assert replayed(changed, FeatureLevelRecord(name="group.version", feature_level=0)).features == image.features


def test_clearing_eligible_leader_replicas(image: MetadataImage) -> None:
    with_elr = replayed(
        image,
        PartitionChangeRecord(topic_id=ONE, partition_id=0, eligible_leader_replicas=[2]),
        PartitionChangeRecord(topic_id=TWO, partition_id=0, last_known_elr=[2]),
    )
    one = replayed(with_elr, ClearElrRecord(topic_name="a.b"))
    assert present(one.topics.partition("a.b", 0)).elr == ()
    assert present(one.topics.partition("c", 0)).last_known_elr == (2,)
    everything = replayed(with_elr, ClearElrRecord())
    assert present(everything.topics.partition("c", 0)).last_known_elr == ()


def test_partitions_from_before_directories(image: MetadataImage) -> None:
    changed = replayed(image, partition(TWO, 1, directories=[]))
    assert present(changed.topics.partition("c", 1)).directories == (MIGRATING_DIRECTORY,) * 2


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="c", topic_id=b"9" * 16),
        partition(b"9" * 16, 0),
        PartitionChangeRecord(topic_id=b"9" * 16, partition_id=0),
        PartitionChangeRecord(topic_id=ONE, partition_id=7),
        RemoveTopicRecord(topic_id=b"9" * 16),
        ClearElrRecord(topic_name="nowhere"),
        UnregisterBrokerRecord(broker_id=9, broker_epoch=1),
        FenceBrokerRecord(id=1, epoch=8),
        RemoveAccessControlEntryRecord(id=b"9" * 16),
        EndTransactionRecord(),
        AbortTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_that_make_no_sense_are_not_guessed_at(image: MetadataImage, record: Message) -> None:
    with pytest.raises(ReplayFailed):
        replayed(image, record)


def test_an_image_is_the_replay_of_its_records(image: MetadataImage) -> None:
    full = replayed(
        image,
        RegisterControllerRecord(controller_id=3, incarnation_id=ONE),
        ProducerIdsRecord(next_producer_id=5000),
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="max.connections", value="1"),
    )
    again = replayed(EMPTY_IMAGE, *full.to_records())
    assert again.same_content(full)
    assert not again.same_content(image)


def entry(acl_id: bytes, name: str) -> AccessControlEntryRecord:
    return Acl(2, name, 3, "User:alice", "*", 3, 3).to_record(acl_id)


def test_acls_come_and_go_and_survive_a_snapshot(image: MetadataImage) -> None:
    before = replayed(image, entry(ONE, "a"), entry(TWO, "b"))
    assert [acl.name for acl in before.acls] == ["a", "b"]
    assert replayed(EMPTY_IMAGE, *before.to_records()).same_content(before)

    delta = MetadataDelta(before)
    delta.replay_all([RemoveAccessControlEntryRecord(id=ONE), entry(HOME, "c"), entry(b"n" * 16, "never")])
    delta.replay(RemoveAccessControlEntryRecord(id=b"n" * 16))
    after = delta.apply(99, 1, 5)
    assert [acl.name for acl in after.acls] == ["b", "c"]
    assert after.acls.ids == {acl: acl_id for acl_id, acl in after.acls.entries.items()}
    for change in (delta, delta_between(before, after)):
        assert [acl.name for acl in change.added_acls.values()] == ["c"]
        assert [acl.name for acl in change.removed_acls.values()] == ["a"]
    assert [acl.name for acl in before.acls] == ["a", "b"]
    for twice in (entry(TWO, "d"), entry(b"x" * 16, "b")):
        with pytest.raises(ReplayFailed):
            replayed(before, twice)


def test_the_end_of_a_migration_from_zookeeper_changes_nothing(image: MetadataImage) -> None:
    assert replayed(image, ZkMigrationStateRecord()).same_content(image)


def test_a_transaction_takes_effect_at_its_end(image: MetadataImage) -> None:
    begun = replayed(image, BeginTransactionRecord(name="many"), TopicRecord(name="new", topic_id=HOME))
    assert begun.topics.id_of("new") is None
    assert present(begun.transaction).name == "many"
    assert begun.offset == image.offset + 2
    with pytest.raises(ReplayFailed):
        replayed(begun, BeginTransactionRecord())
    with pytest.raises(AssertionError):
        list(begun.to_records())
    ended = replayed(begun, partition(HOME, 0), EndTransactionRecord())
    assert ended.topics.partition("new", 0) is not None and ended.transaction is None
    aborted = replayed(begun, partition(HOME, 0), AbortTransactionRecord(reason="no"))
    assert aborted.same_content(image)


LATER_PARTITION = b"\x01\x03\x09whatever it means"


def test_what_may_be_the_consequence_of_an_unserved_record_is_kept_as_well(image: MetadataImage) -> None:
    change = PartitionChangeRecord(topic_id=ONE, partition_id=7, leader=1)
    with pytest.raises(ReplayFailed):
        replayed(image, change)
    after = replayed(image, decode_record(LATER_PARTITION), change, NoOpRecord())
    kept = [LATER_PARTITION, encode_record(change, 30)]
    assert list(after.unserved) == [UnservedRecord(value=value) for value in kept]
    later = replayed(after, PartitionChangeRecord(topic_id=ONE, partition_id=0, leader=2))
    assert present(later.topics.partition("a.b", 0)).leader == 2
    assert [encode_record(record, 30) for record in later.to_records()][-2:] == kept
    assert replayed(EMPTY_IMAGE, *later.to_records()).same_content(later)
