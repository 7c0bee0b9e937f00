"""The coordinators of a broker: groups over `__consumer_offsets`, transactions over `__transaction_state`, the state of
share groups over `__share_group_state`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from penstock.broker.coordinators.completion import Completion
from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.end_offsets import EndOffsets
from penstock.broker.coordinators.marker_delivery import MarkerDelivery
from penstock.broker.coordinators.offset_replay import OffsetReplay
from penstock.broker.coordinators.serde import GROUP_RECORDS, SHARE_STATE_RECORDS, TRANSACTION_RECORDS
from penstock.broker.coordinators.share_groups import ShareGroups
from penstock.broker.coordinators.share_pruning import SharePruning
from penstock.broker.coordinators.share_states import ShareStates
from penstock.broker.coordinators.steady_clock import SteadyClock
from penstock.broker.coordinators.verification import TransactionVerification
from penstock.broker.coordinators.write_markers import MarkerWriter
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.producer_ids import ProducerIds
from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.wakeups import Wakeups
from penstock.broker.slices import Slices
from penstock.groups.records import offset_tombstone
from penstock.groups.settings import GroupCoordinatorSettings
from penstock.groups.shard import GroupShard
from penstock.groups.topics import DeletedTopic
from penstock.io.clock import Clock, Randomness
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, TRANSACTION_VERSION
from penstock.metadata.image import ConfigResource, Metadata, ResourceType
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from penstock.settings.group_config import GroupConfig
from penstock.settings.live import LiveSettings
from penstock.share_state.key import SharePartitionKey
from penstock.share_state.shard import ShareStateShard
from penstock.share_state.state import tombstone as share_state_tombstone
from penstock.transactions.records import tombstone as transaction_tombstone
from penstock.transactions.shard import TransactionShard


class Coordinators:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        randomness: Randomness,
        metadata: Metadata,
        brokers: Brokers,
        replicas: Replicas,
        hints: LeaderHints,
        wakeups: Wakeups,
        producer_ids: ProducerIds,
        is_surely_alive: Callable[[], bool],
        create_topic: Callable[[str], None],
        delete_before: Callable[[Replica, int], None],
    ) -> None:
        """`is_surely_alive`: whether no controller can consider this broker dead. `create_topic` requests an internal
        topic from the controller. `delete_before` deletes the records of a log before an offset."""
        self._settings = settings
        self._loop = loop
        self._metadata = metadata
        self._wakeups = wakeups
        self._randomness = randomness
        self._producer_ids = producer_ids
        self._is_surely_alive = is_surely_alive
        self._topics = ImageTopics(metadata)
        self._group_settings = ImageGroupSettings(metadata, settings)
        self._clock = SteadyClock(clock)
        self._loads = Slices(loop)
        self.groups = self._new_group_coordinator()
        self.transactions = self._new_transaction_coordinator()
        self.shares = self._new_share_coordinator()
        self.share_states = ShareStates(
            self.shares, settings=settings, loop=loop, metadata=metadata, brokers=brokers, create_topic=create_topic
        )
        end_offsets = EndOffsets(settings=settings, loop=loop, metadata=metadata, brokers=brokers, replicas=replicas)
        self.share_groups = ShareGroups(self.groups, self.share_states, end_offsets, metadata)
        self._share_pruning = SharePruning(self.shares, settings=settings, loop=loop, delete_before=delete_before)
        retry_s = settings.static.add_partitions_to_txn_retry_backoff_max_ms / 1000
        self.completion = Completion(self.transactions, retry_s)
        self.marker_writer = MarkerWriter(self.groups, replicas, hints, clock, wakeups)
        self.marker_delivery = MarkerDelivery(
            self.transactions,
            settings=settings,
            loop=loop,
            metadata=metadata,
            brokers=brokers,
            write_here=self.marker_writer.write,
            completed=self.completion.completed,
        )
        self.verification = TransactionVerification(
            self.transactions, self.completion, settings=settings, loop=loop, metadata=metadata, brokers=brokers
        )

    # -- one coordinator of each kind -------------------------------------------------------------------------------

    def _new_group_coordinator(self) -> Coordinator[GroupShard]:
        settings = self._settings.static
        return Coordinator(
            CONSUMER_OFFSETS,
            GROUP_RECORDS,
            self._new_group_shard,
            lambda shard, key, value, producer_id, now_ms, offset: shard.replay(
                key, value, producer_id=producer_id, now_ms=now_ms
            ),
            loop=self._loop,
            clock=self._clock,
            metadata=self._metadata,
            wakeups=self._wakeups,
            partitions_default=settings.offsets_topic_num_partitions,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            load_buffer_size=settings.offsets_load_buffer_size,
            is_sure=self._is_surely_alive,
            no_change=offset_tombstone("", "", 0),
            codec=settings.offsets_topic_compression_codec,
            end_transaction=GroupShard.replay_end_transaction,
            loads=self._loads,
            bytes_replay=lambda shard: OffsetReplay(shard.state.offsets),
        )

    def _new_transaction_coordinator(self) -> Coordinator[TransactionShard]:
        settings = self._settings.static
        return Coordinator(
            TRANSACTION_STATE,
            TRANSACTION_RECORDS,
            self._new_transaction_shard,
            lambda shard, key, value, producer_id, now_ms, offset: shard.replay(key, value),
            loop=self._loop,
            clock=self._clock,
            metadata=self._metadata,
            wakeups=self._wakeups,
            partitions_default=settings.transaction_state_log_num_partitions,
            commit_timeout_ms=settings.request_timeout_ms,
            load_buffer_size=settings.transaction_state_log_load_buffer_size,
            is_sure=self._is_surely_alive,
            no_change=transaction_tombstone(""),
            loads=self._loads,
        )

    def _new_share_coordinator(self) -> Coordinator[ShareStateShard]:
        settings = self._settings.static
        return Coordinator(
            SHARE_GROUP_STATE,
            SHARE_STATE_RECORDS,
            lambda index, leader_epoch: ShareStateShard(self._settings.now, self._topics),
            lambda shard, key, value, producer_id, now_ms, offset: shard.replay(key, value, offset),
            loop=self._loop,
            clock=self._clock,
            metadata=self._metadata,
            wakeups=self._wakeups,
            partitions_default=settings.share_coordinator_state_topic_num_partitions,
            commit_timeout_ms=settings.share_coordinator_write_timeout_ms,
            load_buffer_size=settings.share_coordinator_load_buffer_size,
            is_sure=self._is_surely_alive,
            no_change=share_state_tombstone(SharePartitionKey("", ZERO_UUID, 0)),
            codec=settings.share_coordinator_state_topic_compression_codec,
            loads=self._loads,
        )

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether groups may use the new (consumer) protocol."""
        return (
            self._metadata.image.features.get(GROUP_VERSION, 0) > 0
            and "consumer" in self._settings.now.group_coordinator_rebalance_protocols
        )

    @property
    def serves_share_groups(self) -> bool:
        return self._metadata.image.features.get(SHARE_VERSION, 0) > 0

    @property
    def serves_streams_groups(self) -> bool:
        return self._metadata.image.features.get(STREAMS_VERSION, 0) > 0

    @property
    def transaction_version(self) -> int:
        """The level that the cluster has finalized."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, 0)

    def _new_group_shard(self, index: int, leader_epoch: int) -> GroupShard:
        settings = GroupCoordinatorSettings.of(self._settings.now)
        return GroupShard(settings, self._group_settings, lambda: self._randomness.bytes(16), self._topics)

    def _new_transaction_shard(self, index: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            coordinator_epoch=leader_epoch,
            settings=self._settings.now,
            transaction_version=lambda: self.transaction_version,
            next_producer_id=self._producer_ids.take_if_any,
            offsets_partition=self.groups.partition_of,
        )

    # -- called by the broker ---------------------------------------------------------------------------------------

    def replica_changed(self, replica: Replica) -> None:
        """This broker started or stopped leading a partition, or something else about the partition changed."""
        topic = replica.topic_partition.topic
        if topic == CONSUMER_OFFSETS:
            self.groups.replica_changed(replica)
        elif topic == TRANSACTION_STATE:
            self.transactions.replica_changed(replica)
        elif topic == SHARE_GROUP_STATE:
            self.shares.replica_changed(replica)
            self._share_pruning.set_timer()

    def committed(self, delta: MetadataDelta) -> None:
        """The metadata changed."""
        if delta.changed_topics or delta.removed_topics:
            self._topics.version += 1
        if delta.removed_topics:
            gone = [DeletedTopic(topic.name, topic.topic_id) for topic in delta.removed_topics.values()]
            self.groups.tell_all(lambda shard, now_ms: shard.topics_deleted(gone, now_ms))
            gone_ids = {topic.topic_id for topic in gone}
            self.shares.tell_all(lambda shard, now_ms: shard.topics_deleted(gone_ids))

    def close(self) -> None:
        self.groups.close()
        self.transactions.close()
        self.shares.close()
        self.share_states.close()
        self._share_pruning.close()


class ImageGroupSettings:
    """The settings of a group, from the latest committed metadata."""

    def __init__(self, metadata: Metadata, settings: LiveSettings) -> None:
        self._metadata = metadata
        self._settings = settings
        self._default = GroupCoordinatorSettings()
        self._of_group: dict[str, GroupCoordinatorSettings] = {}
        self._configs: Mapping[ConfigResource, Mapping[str, str]] | None = None

    def __call__(self, group_id: str) -> GroupCoordinatorSettings:
        image = self._metadata.image
        if image.configs is not self._configs:
            self._configs = image.configs
            self._default = GroupCoordinatorSettings.of(self._settings.now)
            self._of_group.clear()
        settings = self._of_group.get(group_id)
        if settings is not None:
            return settings
        overrides = image.config(ResourceType.GROUP, group_id)
        if not overrides:
            return self._default
        settings = self._default.with_config(GroupConfig.in_force(overrides, self._settings.now))
        self._of_group[group_id] = settings
        return settings


class ImageTopics:
    """What groups need to know about topics, from the latest committed metadata."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.version = 0

    def topic_id(self, name: str) -> Uuid | None:
        return self._metadata.image.topics.id_of(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._metadata.image.topics.name_of(topic_id)

    def partition_count(self, name: str) -> int:
        topic = self._metadata.image.topics.by_name(name)
        return 0 if topic is None else len(topic.partitions)

    def topic_names(self) -> Iterable[str]:
        return self._metadata.image.topics.names
