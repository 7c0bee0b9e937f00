"""The coordinators of a broker: groups over `__consumer_offsets`, transactions over `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.broker.coordinators.completion import Completion
from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from penstock.broker.coordinators.marker_delivery import MarkerDelivery
from penstock.broker.coordinators.offset_replay import OffsetReplay
from penstock.broker.coordinators.serde import GROUP_RECORDS, TRANSACTION_RECORDS
from penstock.broker.coordinators.steady_clock import SteadyClock
from penstock.broker.coordinators.verification import TransactionVerification
from penstock.broker.partitions.replica import Replica
from penstock.broker.slices import Slices
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.shard import GroupShard
from penstock.groups.topics import DeletedTopic
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import GROUP_VERSION, TRANSACTION_VERSION
from penstock.metadata.image import ConfigResource, ResourceType
from penstock.model.ids import Uuid
from penstock.settings.group_config import GroupConfig
from penstock.transactions.shard import TransactionShard

if TYPE_CHECKING:
    from penstock.broker.node import Node


class Coordinators:
    def __init__(self, node: Node) -> None:
        self._node = node
        settings = node.settings
        self._topics = ImageTopics(node)
        self._group_settings = ImageGroupSettings(node)
        clock = SteadyClock(node.clock)
        loads = Slices(node.loop)
        self.groups: Coordinator[GroupShard] = Coordinator(
            node,
            clock,
            CONSUMER_OFFSETS,
            GROUP_RECORDS,
            self._new_group_shard,
            lambda shard, key, value, producer_id, now_ms: shard.replay(
                key, value, producer_id=producer_id, now_ms=now_ms
            ),
            partitions_default=settings.offsets_topic_num_partitions,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            load_buffer_size=settings.offsets_load_buffer_size,
            codec=settings.offsets_topic_compression_codec,
            end_transaction=GroupShard.replay_end_transaction,
            loads=loads,
            bytes_replay=lambda shard: OffsetReplay(shard.state.offsets),
        )
        self.transactions: Coordinator[TransactionShard] = Coordinator(
            node,
            clock,
            TRANSACTION_STATE,
            TRANSACTION_RECORDS,
            self._new_transaction_shard,
            lambda shard, key, value, producer_id, now_ms: shard.replay(key, value),
            partitions_default=settings.transaction_state_log_num_partitions,
            commit_timeout_ms=settings.request_timeout_ms,
            load_buffer_size=settings.transaction_state_log_load_buffer_size,
            loads=loads,
        )
        self.completion = Completion(self.transactions, settings.add_partitions_to_txn_retry_backoff_max_ms / 1000)
        self.markers = MarkerDelivery(node, self.transactions, self.completion.completed)
        self.verification = TransactionVerification(node)

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether groups of the new protocol may be used."""
        return (
            self._node.image.features.get(GROUP_VERSION, 0) > 0
            and "consumer" in self._node.settings.group_coordinator_rebalance_protocols
        )

    @property
    def transaction_version(self) -> int:
        """The level that is finalized in the cluster."""
        return self._node.image.features.get(TRANSACTION_VERSION, 0)

    def _new_group_shard(self, index: int, leader_epoch: int) -> GroupShard:
        settings = GroupCoordinatorSettings.of(self._node.settings)
        return GroupShard(settings, self._group_settings, lambda: self._node.randomness.bytes(16), self._topics)

    def _new_transaction_shard(self, index: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            coordinator_epoch=leader_epoch,
            settings=self._node.settings,
            transaction_version=lambda: self.transaction_version,
            next_producer_id=self._node.producer_ids.take_if_any,
            offsets_partition=self.groups.partition_of,
            is_sure=lambda: self._node.lifecycle.is_surely_alive,
        )

    # -- what the broker tells --------------------------------------------------------------------------------------

    def replica_changed(self, replica: Replica) -> None:
        """This broker began or ceased to lead a partition, or something else about it changed."""
        topic = replica.topic_partition.topic
        if topic == CONSUMER_OFFSETS:
            self.groups.replica_changed(replica)
        elif topic == TRANSACTION_STATE:
            self.transactions.replica_changed(replica)

    def committed(self, delta: MetadataDelta) -> None:
        """The metadata changed."""
        if delta.changed_topics or delta.removed_topics:
            self._topics.version += 1
        if delta.removed_topics:
            gone = [DeletedTopic(topic.name, topic.topic_id) for topic in delta.removed_topics.values()]
            self.groups.tell_all(lambda shard, now_ms: shard.topics_deleted(gone, now_ms))

    def close(self) -> None:
        self.groups.close()
        self.transactions.close()


class ImageGroupSettings:
    """What holds for a group, as the committed metadata has it now."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._default = GroupCoordinatorSettings()
        self._of_group: dict[str, GroupCoordinatorSettings] = {}
        self._configs: Mapping[ConfigResource, Mapping[str, str]] | None = None

    def __call__(self, group_id: str) -> GroupCoordinatorSettings:
        image = self._node.image
        if image.configs is not self._configs:
            self._configs = image.configs
            self._default = GroupCoordinatorSettings.of(self._node.settings)
            self._of_group.clear()
        settings = self._of_group.get(group_id)
        if settings is not None:
            return settings
        overrides = image.config(ResourceType.GROUP, group_id)
        if not overrides:
            return self._default
        settings = self._default.with_config(GroupConfig.in_force(overrides, self._node.settings))
        self._of_group[group_id] = settings
        return settings


class ImageTopics:
    """What groups may know of topics, as the committed metadata has it now."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.version = 0

    def topic_id(self, name: str) -> Uuid | None:
        return self._node.image.topics.id_of(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._node.image.topics.name_of(topic_id)

    def partition_count(self, name: str) -> int:
        topic = self._node.image.topics.by_name(name)
        return 0 if topic is None else len(topic.partitions)

    def topic_names(self) -> Iterable[str]:
        return self._node.image.topics.names
