"""A delta: collects metadata records and applies them to an image.

    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    image = delta.apply(offset, epoch, timestamp_ms)

Only what the records touch is copied: a change of one partition copies that topic's partitions and the tables of
topics, once per delta and not once per record. Code that acts on changes reads the delta's `changed_...` and
`removed_...` attributes instead of comparing images.

A record that contradicts its image (a partition of an unknown topic, a change of one that does not exist) raises
`ReplayFailed`. With a log that only a correct controller writes this cannot happen, so the node stops rather than
guesses. The exception are images with records that this software does not serve (`metadata/unserved`).

Records between BeginTransactionRecord and EndTransactionRecord are part of one change that did not fit into a batch.
They wait in `MetadataImage.transaction`, without any effect, until EndTransactionRecord replays them all, or
AbortTransactionRecord drops them. A transaction may span many deltas; the offset of the image advances meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from penstock.metadata.acls import AclsImage
from penstock.metadata.cluster import BrokerRegistration, ControllerRegistration
from penstock.metadata.features import KRAFT_VERSION, METADATA_VERSION
from penstock.metadata.image import ConfigResource, MetadataImage, OpenTransaction, ResourceType
from penstock.metadata.partition import Partition
from penstock.metadata.serde import encode_record
from penstock.metadata.topics import Topic, TopicsImage, collision_key
from penstock.metadata.unserved import UnservedRecord
from penstock.model.ids import Uuid, uuid_text
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
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
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from penstock.quotas.entity import Entity, entity_of
from penstock.security.acls import Acl
from penstock.security.credentials import ScramCredential, ScramMechanism, ScramUser
from penstock.security.principal import parse_principal
from penstock.security.tokens import DelegationToken

# The change that ClearElrRecord makes to each partition with eligible leader replicas.
_ELR_CLEARED: Final = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])


class ReplayFailed(Exception):
    """A metadata record that contradicts the image."""


class MetadataDelta:
    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        # The records that took effect; those of an open transaction have not yet.
        self.records: list[Message] = []
        # The changes, for code that acts on them. A topic created and deleted within the delta is in neither.
        self.changed_topics: dict[Uuid, str] = {}
        # Exactly the partitions of existing topics that are new or changed.
        self.changed_partitions: dict[Uuid, set[int]] = {}
        self.removed_topics: dict[Uuid, Topic] = {}
        self.changed_configs: set[ConfigResource] = set()
        self.changed_brokers: set[int] = set()
        # An ACL created and deleted within the delta is in neither.
        self.added_acls: dict[Uuid, Acl] = {}
        self.removed_acls: dict[Uuid, Acl] = {}
        self.quotas_changed = False
        # Those of this delta only.
        self.unserved: list[UnservedRecord] = []

        self._transaction_name: str | None = None if image.transaction is None else image.transaction.name
        self._waiting: list[Message] | None = None if image.transaction is None else list(image.transaction.records)
        self._features = image.features
        self._brokers = image.brokers
        self._controllers = image.controllers
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._acl_entries: dict[Uuid, Acl] | None = None
        self._acl_ids: dict[Acl, Uuid] = {}
        self._quotas: dict[Entity, Mapping[str, float]] | None = None
        self._next_producer_id = image.next_producer_id
        self._scram_credentials: dict[ScramUser, ScramCredential] | None = None
        self._delegation_tokens: dict[str, DelegationToken] | None = None
        self._ids: dict[Uuid, Topic] | None = None
        self._names: dict[str, Uuid] | None = None
        self._collisions: dict[str, tuple[str, ...]] = {}
        # The partitions of changed topics: copies that may be modified until `apply`.
        self._partitions: dict[Uuid, dict[int, Partition]] = {}

    def replay_all(self, records: Iterable[Message]) -> None:
        for record in records:
            self.replay(record)

    def replay(self, record: Message) -> None:
        if isinstance(record, BeginTransactionRecord):
            if self._waiting is not None:
                raise ReplayFailed("a metadata transaction begins inside another")
            self._transaction_name, self._waiting = record.name, []
        elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            if self._waiting is None:
                raise ReplayFailed("a metadata transaction ends that did not begin")
            waiting, self._waiting = self._waiting, None
            if isinstance(record, EndTransactionRecord):
                for each in waiting:
                    self._take_effect(each)
        elif self._waiting is not None:
            self._waiting.append(record)
        else:
            self._take_effect(record)

    def _take_effect(self, record: Message) -> None:
        handler = self._handlers.get(type(record))
        assert handler is not None, f"{type(record).__name__} is no metadata record"
        try:
            handler(self, record)
        except ReplayFailed:
            if not self.unserved and not self.image.unserved:
                raise
            value = encode_record(record, self._features.get(METADATA_VERSION, 0))
            self.unserved.append(UnservedRecord(value=value))
        self.records.append(record)

    def apply(self, offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
        """The image after the records; the delta cannot be used again."""
        topics = self.image.topics
        if self._ids is not None:
            for topic_id, name in self.changed_topics.items():
                self._ids[topic_id] = Topic(name, topic_id, self._partitions[topic_id])
            if self._names is None:
                topics = TopicsImage(self._ids, topics.names, topics.collisions)
            else:
                topics = TopicsImage(self._ids, self._names, self._collisions)
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            features=self._features,
            brokers=self._brokers,
            controllers=self._controllers,
            topics=topics,
            configs=self.image.configs if self._configs is None else self._configs,
            acls=self.image.acls if self._acl_entries is None else AclsImage(self._acl_entries, self._acl_ids),
            client_quotas=self.image.client_quotas if self._quotas is None else self._quotas,
            next_producer_id=self._next_producer_id,
            scram_credentials=(
                self.image.scram_credentials if self._scram_credentials is None else self._scram_credentials
            ),
            delegation_tokens=(
                self.image.delegation_tokens if self._delegation_tokens is None else self._delegation_tokens
            ),
            unserved=(*self.image.unserved, *self.unserved) if self.unserved else self.image.unserved,
            transaction=(
                None if self._waiting is None else OpenTransaction(self._transaction_name, tuple(self._waiting))
            ),
        )

    # -- features, nodes, producer ids ------------------------------------------------------------------------------

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        if record.name == KRAFT_VERSION:
            return  # the quorum has its own records for kraft.version
        features = dict(self._features)
        if record.feature_level:
            features[record.name] = record.feature_level
        else:
            features.pop(record.name, None)
        self._features = features

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self._set_broker(BrokerRegistration.from_record(record))

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        brokers = dict(self._brokers)
        del brokers[record.broker_id]
        self._brokers = brokers
        self.changed_brokers.add(record.broker_id)

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self._set_broker(replace(self._broker(record.id, record.epoch), fenced=True))

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._set_broker(replace(self._broker(record.id, record.epoch), fenced=False))

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["directories"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_directories"] = tuple(record.cordoned_log_dirs)
        self._set_broker(replace(broker, **changes))

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise ReplayFailed(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise ReplayFailed(f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}")
        return broker

    def _set_broker(self, broker: BrokerRegistration) -> None:
        self._brokers = {**self._brokers, broker.broker_id: broker}
        self.changed_brokers.add(broker.broker_id)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        controller = ControllerRegistration.from_record(record)
        self._controllers = {**self._controllers, controller.controller_id: controller}

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        if record.controller_id not in self._controllers:
            raise ReplayFailed(f"controller {record.controller_id} is not registered")
        self._controllers = {
            controller_id: controller
            for controller_id, controller in self._controllers.items()
            if controller_id != record.controller_id
        }

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id and self._next_producer_id:
            raise ReplayFailed(f"the next producer id went from {self._next_producer_id} to {record.next_producer_id}")
        self._next_producer_id = record.next_producer_id

    # -- credentials ---------------------------------------------------------------------------------------------------

    def _scram_credential(self, record: UserScramCredentialRecord) -> None:
        user = _scram_user(record.name, record.mechanism)
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._own_scram_credentials()[user] = credential

    def _remove_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        user = _scram_user(record.name, record.mechanism)
        if self._own_scram_credentials().pop(user, None) is None:
            raise ReplayFailed(f"user {record.name} has no {user.mechanism.title} credential")

    def _own_scram_credentials(self) -> dict[ScramUser, ScramCredential]:
        if self._scram_credentials is None:
            self._scram_credentials = dict(self.image.scram_credentials)
        return self._scram_credentials

    def _delegation_token(self, record: DelegationTokenRecord) -> None:
        try:
            token = DelegationToken(
                record.token_id,
                parse_principal(record.owner),
                parse_principal(record.requester),
                tuple(map(parse_principal, record.renewers)),
                record.issue_timestamp,
                record.max_timestamp,
                record.expiration_timestamp,
            )
        except ValueError as error:
            raise ReplayFailed(f"delegation token {record.token_id}: {error}") from error
        self._own_delegation_tokens()[token.token_id] = token

    def _remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        if self._own_delegation_tokens().pop(record.token_id, None) is None:
            raise ReplayFailed(f"there is no delegation token {record.token_id}")

    def _own_delegation_tokens(self) -> dict[str, DelegationToken]:
        if self._delegation_tokens is None:
            self._delegation_tokens = dict(self.image.delegation_tokens)
        return self._delegation_tokens

    # -- topics ------------------------------------------------------------------------------------------------------

    def _topic(self, record: TopicRecord) -> None:
        ids, names = self._own_ids(), self._own_names()
        if record.name in names:
            raise ReplayFailed(f"topic {record.name} exists already")
        self._partitions[record.topic_id] = {}
        self.changed_topics[record.topic_id] = record.name
        self.changed_partitions[record.topic_id] = set()
        # A placeholder until `apply`, so that snapshots and listings keep the order of creation.
        ids[record.topic_id] = Topic(record.name, record.topic_id, {})
        names[record.name] = record.topic_id
        key = collision_key(record.name)
        if key is not None:
            others = self._collisions.get(key, ())
            self._collisions[key] = tuple(sorted({*others, record.name}))

    def _partition(self, record: PartitionRecord) -> None:
        self._partitions_of(record.topic_id)[record.partition_id] = Partition.from_record(record)
        self.changed_partitions[record.topic_id].add(record.partition_id)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        partition = partitions.get(record.partition_id)
        if partition is None:
            raise ReplayFailed(f"topic {uuid_text(record.topic_id)} has no partition {record.partition_id}")
        partitions[record.partition_id] = partition.merge(record)
        self.changed_partitions[record.topic_id].add(record.partition_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        ids, names = self._own_ids(), self._own_names()
        topic = ids.pop(record.topic_id, None)
        if topic is None:
            raise ReplayFailed(f"no topic has the id {uuid_text(record.topic_id)}")
        del names[topic.name]
        self._partitions.pop(record.topic_id, None)
        self.changed_topics.pop(record.topic_id, None)
        self.changed_partitions.pop(record.topic_id, None)
        before = self.image.topics.by_id(record.topic_id)
        if before is not None:
            self.removed_topics[record.topic_id] = before
        key = collision_key(topic.name)
        if key is not None:
            others = tuple(name for name in self._collisions[key] if name != topic.name)
            if others:
                self._collisions[key] = others
            else:
                del self._collisions[key]
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        if resource in (self.image.configs if self._configs is None else self._configs):
            del self._own_configs()[resource]
            self.changed_configs.add(resource)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        ids = self._own_ids()
        topic_ids = list(ids)
        if record.topic_name:
            topic_ids = [topic_id for topic_id in topic_ids if ids[topic_id].name == record.topic_name]
            if not topic_ids:
                raise ReplayFailed(f"there is no topic {record.topic_name}")
        for topic_id in topic_ids:
            current = self._partitions.get(topic_id, ids[topic_id].partitions)
            if any(partition.elr or partition.last_known_elr for partition in current.values()):
                partitions = self._partitions_of(topic_id)
                for partition_id, partition in partitions.items():
                    if partition.elr or partition.last_known_elr:
                        partitions[partition_id] = partition.merge(_ELR_CLEARED)
                        self.changed_partitions[topic_id].add(partition_id)

    def _own_ids(self) -> dict[Uuid, Topic]:
        if self._ids is None:
            self._ids = dict(self.image.topics.ids)
        return self._ids

    def _own_names(self) -> dict[str, Uuid]:
        if self._names is None:
            self._names = dict(self.image.topics.names)
            self._collisions = dict(self.image.topics.collisions)
        return self._names

    def _partitions_of(self, topic_id: Uuid) -> dict[int, Partition]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._own_ids().get(topic_id)
            if topic is None:
                raise ReplayFailed(f"no topic has the id {uuid_text(topic_id)}")
            partitions = self._partitions[topic_id] = dict(topic.partitions)
            self.changed_topics[topic_id] = topic.name
            self.changed_partitions[topic_id] = set()
        return partitions

    # -- configs -----------------------------------------------------------------------------------------------------

    def _config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        configs = self._own_configs()
        values = dict(configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            configs[resource] = values
        else:
            configs.pop(resource, None)
        self.changed_configs.add(resource)

    def _own_configs(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self.image.configs)
        return self._configs

    # -- ACLs --------------------------------------------------------------------------------------------------------

    def _add_acl(self, record: AccessControlEntryRecord) -> None:
        acl = Acl.from_record(record)
        entries = self._own_acls()
        if record.id in entries:
            raise ReplayFailed(f"there is an ACL with the id {uuid_text(record.id)} already")
        if acl in self._acl_ids:
            raise ReplayFailed(f"the ACL exists already: {acl}")
        entries[record.id] = acl
        self._acl_ids[acl] = record.id
        self.added_acls[record.id] = acl

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        acl = self._own_acls().pop(record.id, None)
        if acl is None:
            raise ReplayFailed(f"no ACL has the id {uuid_text(record.id)}")
        del self._acl_ids[acl]
        if self.added_acls.pop(record.id, None) is None:
            self.removed_acls[record.id] = acl

    def _own_acls(self) -> dict[Uuid, Acl]:
        if self._acl_entries is None:
            self._acl_entries = dict(self.image.acls.entries)
            self._acl_ids = dict(self.image.acls.ids)
        return self._acl_entries

    # -- quotas ------------------------------------------------------------------------------------------------------

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        if self._quotas is None:
            self._quotas = dict(self.image.client_quotas)
        entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
        values = dict(self._quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._quotas[entity] = values
        else:
            self._quotas.pop(entity, None)
        self.quotas_changed = True

    def _nothing(self, record: NoOpRecord | ZkMigrationStateRecord) -> None:
        """A record that only advances the log: also the end of a migration from ZooKeeper, in clusters that began with
        Kafka 3."""

    def _unserved(self, record: UnservedRecord) -> None:
        self.unserved.append(record)

    _handlers: ClassVar[dict[type[Message], Callable[[MetadataDelta, Any], None]]] = {
        AccessControlEntryRecord: _add_acl,
        BrokerRegistrationChangeRecord: _change_broker,
        ClearElrRecord: _clear_elr,
        ClientQuotaRecord: _client_quota,
        ConfigRecord: _config,
        DelegationTokenRecord: _delegation_token,
        FeatureLevelRecord: _feature_level,
        FenceBrokerRecord: _fence_broker,
        NoOpRecord: _nothing,
        PartitionChangeRecord: _change_partition,
        PartitionRecord: _partition,
        ProducerIdsRecord: _producer_ids,
        RegisterBrokerRecord: _register_broker,
        RegisterControllerRecord: _register_controller,
        RemoveAccessControlEntryRecord: _remove_acl,
        RemoveDelegationTokenRecord: _remove_delegation_token,
        RemoveTopicRecord: _remove_topic,
        RemoveUserScramCredentialRecord: _remove_scram_credential,
        TopicRecord: _topic,
        UnfenceBrokerRecord: _unfence_broker,
        UnregisterBrokerRecord: _unregister_broker,
        UnregisterControllerRecord: _unregister_controller,
        UnservedRecord: _unserved,
        UserScramCredentialRecord: _scram_credential,
        ZkMigrationStateRecord: _nothing,
    }


def _scram_user(name: str, mechanism: int) -> ScramUser:
    try:
        return ScramUser(name, ScramMechanism(mechanism))
    except ValueError as error:
        raise ReplayFailed(f"user {name}: there is no SCRAM mechanism {mechanism}") from error
