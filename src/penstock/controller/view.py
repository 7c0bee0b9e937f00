"""The input of handlers: one image, the index of its partitions, and the settings that decide elections."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from penstock.controller.elections import Election, Rules, Usable, Wanted, change_of
from penstock.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from penstock.metadata.image import MetadataImage
from penstock.metadata.index import PartitionIndex, PartitionKey
from penstock.metadata.partition import NO_LEADER, Partition
from penstock.metadata.topics import Topic
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.metadata_records import PartitionChangeRecord
from penstock.settings.topic import TOPIC_SETTINGS, TopicSettings

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


class ClusterView:
    """`topic_defaults` are the settings of topics that do not override them; `awaited` are the brokers that may be back
    in a moment, which no unclean election may replace."""

    def __init__(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        topic_defaults: TopicSettings,
        awaited: Collection[int] = (),
    ) -> None:
        self.image = image
        self.index = index
        self.elr = image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1
        self._defaults = topic_defaults
        self._awaited = awaited
        self._rules: dict[Uuid, Rules] = {}

    def rules(self, topic: Topic) -> Rules:
        rules = self._rules.get(topic.topic_id)
        if rules is None:
            configs = self.image.topic_config(topic.name)
            required = self._defaults.min_insync_replicas
            unclean = self._defaults.unclean_leader_election_enable
            if MIN_INSYNC_REPLICAS in configs:
                required = int(configs[MIN_INSYNC_REPLICAS])
            if UNCLEAN_LEADER_ELECTION_ENABLE in configs:
                unclean = TOPIC_SETTINGS[UNCLEAN_LEADER_ELECTION_ENABLE].parse(configs[UNCLEAN_LEADER_ELECTION_ENABLE])
            first = topic.partitions.get(0)
            if first is not None:
                required = min(required, len(first.replicas))
            rules = self._rules[topic.topic_id] = Rules(required, unclean, self.elr)
        return rules

    def election(self, topic: Topic, partition: Partition, *, gone: Collection[int] = ()) -> Election:
        """The kind of election if none was requested: unclean only if the topic allows it, and if no replica is awaited
        that may have all committed records. `gone`: replicas that will not return."""
        if not self.rules(topic).unclean:
            return Election.ONLINE
        knowing = (*partition.isr, *partition.elr, *partition.last_known_elr)
        awaited = any(replica in self._awaited and replica not in gone for replica in knowing)
        return Election.ONLINE if awaited else Election.UNCLEAN

    def find(self, key: PartitionKey) -> tuple[Topic, Partition]:
        """Find a partition that is known to exist."""
        topic = self.image.topics.ids[key[0]]
        return topic, topic.partitions[key[1]]

    def usable(self, broker_id: int, directory: Uuid) -> bool:
        """Whether a broker may lead a replica that it has in this directory."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker.has_online(directory)

    def usable_but(self, gone: int) -> Usable:
        """Like `usable`, without one broker."""
        return lambda broker_id, directory: broker_id != gone and self.usable(broker_id, directory)

    def usable_and(self, back: int) -> Usable:
        """Like `usable`, as if one inactive broker were active."""
        broker = self.image.brokers[back]

        def usable(broker_id: int, directory: Uuid) -> bool:
            return broker.has_online(directory) if broker_id == back else self.usable(broker_id, directory)

        return usable

    def change_and_elect(
        self,
        topic: Topic,
        partition_id: int,
        wanted: Wanted,
        usable: Usable | None = None,
        *,
        gone: Collection[int] = (),
    ) -> PartitionChangeRecord | None:
        """The change, with an election of the default kind. The kind depends on which replicas may have all committed
        records after this change: a replica that loses that now, because its disk was replaced, is not awaited."""
        change = self.change(topic, partition_id, wanted, usable)
        partition = topic.partitions[partition_id]
        after = partition if change is None else partition.merge(change)
        if after.leader == NO_LEADER and self.election(topic, after, gone=gone) is Election.UNCLEAN:
            return self.change(topic, partition_id, replace(wanted, election=Election.UNCLEAN), usable)
        return change

    def change(
        self, topic: Topic, partition_id: int, wanted: Wanted, usable: Usable | None = None
    ) -> PartitionChangeRecord | None:
        return change_of(
            topic.topic_id,
            partition_id,
            topic.partitions[partition_id],
            wanted,
            usable or self.usable,
            self.rules(topic),
        )

    def check_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Raises KafkaError(STALE_BROKER_EPOCH) unless the broker is registered with this epoch."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch} of broker {broker_id}, but got {broker_epoch}",
            )
