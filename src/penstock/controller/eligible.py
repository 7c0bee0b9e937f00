"""Eligible leader replicas (ELR) as a feature of the cluster: enabling it, disabling it, and changes that affect it.

An eligible leader replica is trusted because the high watermark did not move while fewer than `min.insync.replicas`
replicas were in sync. So all nodes must use the same number: with the feature, `min.insync.replicas` is set for the
whole cluster and for topics, never for single brokers. When the number changes, replicas that were eligible under the
old number no longer are: from that moment the leader may continue with fewer replicas.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.controller.view import MIN_INSYNC_REPLICAS, ClusterView
from penstock.metadata.image import ConfigResource, MetadataImage, ResourceType
from penstock.metadata.index import PartitionKey
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord


def records_to_enable(image: MetadataImage, min_insync_replicas: int) -> list[Message]:
    """`min_insync_replicas`: the value in the controller's own file, for a cluster that has not set it yet."""
    records: list[Message] = []
    if MIN_INSYNC_REPLICAS not in image.config(ResourceType.BROKER, ""):
        records.append(_min_insync_replicas("", str(min_insync_replicas)))
    for resource in sorted(image.configs):
        is_one_broker = resource.type == ResourceType.BROKER and resource.name
        if is_one_broker and MIN_INSYNC_REPLICAS in image.configs[resource]:
            records.append(_min_insync_replicas(resource.name, None))
    return records


def _min_insync_replicas(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name=broker, name=MIN_INSYNC_REPLICAS, value=value)


def records_to_disable(view: ClusterView) -> list[Message]:
    """Refuse while a partition has no in-sync replicas: without the feature it could never have a leader again."""
    for key in view.index.leaderless:
        topic, partition = view.find(key)
        if not partition.isr:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Partition {topic.name}-{key[1]} has no in-sync replicas, and would have no way to get a leader.",
            )
    return [ClearElrRecord()] if view.index.any_eligible else []


def check_change(resource: ConfigResource, value: str | None) -> None:
    """Raises KafkaError for a change of `min.insync.replicas` that would make brokers differ."""
    if resource.type != ResourceType.BROKER:
        return
    if resource.name:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        )
    if value is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        )


def records_after_change(view: ClusterView, records: Iterable[Message]) -> list[Message]:
    """The additional records if these records change `min.insync.replicas`.

    A partition without a leader keeps its eligible leader replicas: nothing was written since they became eligible, and
    they are all it has. It may even have none of them, but only the last leader. ClearElrRecord removes that one too,
    so it is not used for topics with such a partition.
    """
    changed = [record for record in records if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS]
    if not changed or not view.elr:
        return []
    everywhere = any(record.resource_type == ResourceType.BROKER for record in changed)
    topic_ids = {view.image.topics.id_of(record.resource_name) for record in changed}
    affected = [key for key in view.index.with_eligible() if everywhere or key[0] in topic_ids]
    waiting = {key[0] for key in view.index.leaderless if everywhere or key[0] in topic_ids}
    if everywhere and not waiting:
        return [ClearElrRecord()] if affected else []
    cleared: list[Message] = [
        ClearElrRecord(topic_name=view.image.topics.ids[topic_id].name)
        for topic_id in dict.fromkeys(key[0] for key in affected)
        if topic_id not in waiting
    ]
    return [*cleared, *(_cleared(key) for key in affected if key[0] in waiting and view.find(key)[1].isr)]


def _cleared(key: PartitionKey) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=key[0], partition_id=key[1], eligible_leader_replicas=[])
