"""Applies the metadata to the replicas of this broker: opens, leads, follows and deletes them.

When the metadata changes, at most `LOGS_AT_ONCE` logs are opened at a time, even of a topic with very many partitions:
other work needs the event loop, too, and a broker that opens thousands of logs without a heartbeat would be fenced.

A partition whose log cannot be opened (because the disk is full, for example) is skipped and retried until it can be:
the metadata is committed, and one partition is no reason to stop all others. At the start, however, this is an error:
the broker serves no client yet, and an operator is watching.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable

from penstock.broker.metadata.registration import Registration
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.replication import Replication
from penstock.broker.partitions.wakeups import Wakeups
from penstock.broker.storage.directory_assignments import DirectoryAssignments
from penstock.broker.storage.storage import Storage
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import Metadata, ResourceType
from penstock.metadata.partition import LOST_DIRECTORY, Partition, is_reserved_directory
from penstock.metadata.topics import Topic
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition, Uuid
from penstock.settings.live import LiveSettings
from penstock.settings.topic import TopicSettings

logger = logging.getLogger("penstock.storage")

RETRY_S = 1.0
LOGS_AT_ONCE = 50


class Assignment:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        registration: Registration,
        metadata: Metadata,
        replicas: Replicas,
        wakeups: Wakeups,
        storage: Storage,
        directory_assignments: DirectoryAssignments,
        replication: Replication,
        on_changed: Callable[[Replica], None],
    ) -> None:
        """`on_changed`: this broker began or stopped leading a partition, or something else about it changed."""
        self._settings = settings
        self._loop = loop
        self._registration = registration
        self._broker_id = registration.broker_id
        self._metadata = metadata
        self._replicas = replicas
        self._wakeups = wakeups
        self._storage = storage
        self._directory_assignments = directory_assignments
        self._replication = replication
        self._on_changed = on_changed
        self._is_loaded = False
        # Before this process has registered, the metadata describes the previous process.
        self._is_registered = False
        self._incomplete: set[str] = set()  # topics with partitions that could not be opened
        self._unopened: dict[str, None] = {}  # topics with partitions that are still to be opened
        self._going_on: asyncio.Handle | None = None
        self._trying_again: asyncio.Handle | None = None

    def load(self) -> None:
        """At the start, after the metadata is replayed: set stray logs aside and open the assigned ones."""
        self._storage.set_aside_strays(self._is_mine)
        for topic in self._metadata.image.topics:
            self._open_partitions(topic.name)
        self._is_loaded = True

    def registered(self) -> None:
        """This process has registered. Lead and follow as soon as the metadata contains the registration."""
        registration = self._metadata.image.brokers.get(self._broker_id)
        if registration is None or registration.epoch != self._registration.broker_epoch or self._is_registered:
            return
        self._is_registered = True
        self._replication.settings_changed()
        for topic in self._metadata.image.topics:
            self._open_partitions(topic.name)
        self._replication.proposals.start()

    def close(self) -> None:
        """Stop leading and following."""
        for handle in (self._going_on, self._trying_again):
            if handle is not None:
                handle.cancel()
        self._replication.close()

    def committed(self, delta: MetadataDelta) -> None:  # noqa: C901
        """The metadata changed; the node's own settings are already updated."""
        if not self._is_loaded:
            return
        if not self._is_registered:
            self.registered()
        for topic in delta.removed_topics.values():
            for replica in self._replicas.of_topic(topic.name):
                if replica.topic_id == topic.topic_id:
                    self._let_go(replica)
            if topic.name in self._incomplete:
                self._incomplete.discard(topic.name)
                for index in topic.partitions:
                    self._storage.delete_unopened(TopicPartition(topic.name, index))
        for broker_id in delta.changed_brokers:
            self._replication.fetchers.broker_changed(broker_id)
        self._bring_in_line(delta.changed_topics.values())
        if any(resource.type == ResourceType.BROKER for resource in delta.changed_configs):
            self._replication.settings_changed()
            for replica in self._replicas:
                self._update_settings(replica)
        for resource in delta.changed_configs:
            if resource.type == ResourceType.TOPIC:
                for replica in self._replicas.of_topic(resource.name):
                    self._update_settings(replica)
        self._wakeups.run()

    def _is_mine(self, partition: TopicPartition, topic_id: Uuid | None) -> bool:
        topic = self._metadata.image.topics.by_name(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return False
        is_same_topic = topic_id is None or topic_id == topic.topic_id
        return is_same_topic and self._broker_id in topic.partitions[partition.partition].replicas

    def _bring_in_line(self, names: Iterable[str]) -> None:
        """Update open replicas now. Open at most `LOGS_AT_ONCE` logs; the others follow, topic by topic."""
        left = LOGS_AT_ONCE
        for name in names:
            opened = self._open_partitions(name, left)
            if opened > left:
                self._unopened[name] = None
            else:
                self._unopened.pop(name, None)
            left = max(0, left - opened)
        if self._unopened and self._going_on is None:
            self._going_on = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._going_on = None
        self._bring_in_line([next(iter(self._unopened))])
        self._wakeups.run()

    def _open_partitions(self, name: str, at_most: int = sys.maxsize) -> int:
        """Open a replica for every partition of the topic assigned to this broker; lead or follow as the metadata says.

        Returns how many had to be opened. If that is more than `at_most`, only `at_most` were opened.
        """
        topic = self._metadata.image.topics.by_name(name)
        opened = 0
        if topic is None:
            return opened
        settings = self._topic_settings(name)
        for index, partition in topic.partitions.items():
            replica = self._replicas.get(name, index)
            if self._broker_id not in partition.replicas:
                if replica is not None and self._is_registered:
                    self._let_go(replica)
                self._storage.forget_offline(TopicPartition(name, index))
                continue
            if replica is None:
                if self._storage.is_offline(TopicPartition(name, index), topic.topic_id):
                    continue
                opened += 1
                if opened > at_most:
                    continue
                replica = self._open(topic, index, partition, settings)
                if replica is None:
                    continue
            if self._is_registered:
                self._take_part(replica, partition)
        return opened

    def _open(self, topic: Topic, index: int, partition: Partition, settings: TopicSettings) -> Replica | None:
        """Open a replica; None if it cannot be opened now, or not before the next start.

        If the metadata does not have the replica's current directory, report it to the controller.
        """
        storage = self._storage
        place = TopicPartition(topic.name, index)
        assigned = partition.directory_of(self._broker_id)
        # A partition without a directory is new; but at the start it may be older than the directory's failure.
        is_assigned = not is_reserved_directory(assigned)
        if storage.may_be_offline(place, assigned) and (is_assigned or not self._is_loaded):
            logger.error("%s is not in any directory that is online: it is offline", place)
            storage.set_offline(place, topic.topic_id)
            if not is_assigned and assigned != LOST_DIRECTORY:
                self._directory_assignments.assign(topic.topic_id, index, LOST_DIRECTORY)
            return None
        try:
            replica = storage.open_replica(place, topic.topic_id, settings, assigned)
        except KafkaError as error:
            if storage.is_offline(place, topic.topic_id):
                logger.error("%s: it is offline", error.message)
            elif self._is_loaded:
                self._try_again_later(topic.name, error)
            else:
                raise
            return None
        directory_id = storage.directory_id_of(replica)
        if directory_id != assigned:
            if is_assigned:
                logger.warning(
                    "%s is in %s, and not where the metadata has it", place, storage.directory_of(replica.log).path
                )
            self._directory_assignments.assign(topic.topic_id, index, directory_id)
        return replica

    def failed(self, replica: Replica) -> None:
        """The replica's log directory is offline."""
        self._replication.fetchers.forget(replica)
        self._on_changed(replica)

    def _take_part(self, replica: Replica, partition: Partition) -> None:
        if partition is replica.partition:
            return
        self._replication.take_part(replica, partition)
        self._on_changed(replica)

    def _let_go(self, replica: Replica) -> None:
        """Delete a replica whose topic was deleted or that was reassigned to other brokers."""
        self._replication.fetchers.forget(replica)
        self._storage.delete_replica(replica)
        self._on_changed(replica)

    def _try_again_later(self, name: str, error: KafkaError) -> None:
        logger.error("%s; trying again every %g s", error.message, RETRY_S)
        if not self._incomplete:
            self._trying_again = self._loop.call_later(RETRY_S, self._try_again)
        self._incomplete.add(name)

    def _try_again(self) -> None:
        incomplete, self._incomplete = self._incomplete, set()
        self._bring_in_line(sorted(incomplete))

    def _topic_settings(self, name: str) -> TopicSettings:
        return TopicSettings.from_overrides(self._metadata.image.topic_config(name), self._settings.now.topic_defaults)

    def _update_settings(self, replica: Replica) -> None:
        replica.log.update_settings(self._topic_settings(replica.topic_partition.topic))
        replica.settings_changed()
