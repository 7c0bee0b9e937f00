"""The image: the complete cluster metadata as of one offset.

An image never changes. Replaying records makes a `MetadataDelta`, and applying that makes the next image, which shares
all unchanged parts with the previous one. So the same value can be read by a request, written as a snapshot by a worker
thread, and kept as the state to return to, while the controller already works on the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from penstock.metadata.acls import AclsImage
from penstock.metadata.cluster import BrokerRegistration, ControllerRegistration
from penstock.metadata.features import METADATA_VERSION
from penstock.metadata.partition import Partition
from penstock.metadata.topics import TopicsImage
from penstock.metadata.unserved import UnservedRecord
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from penstock.quotas.entity import Entity, Quotas, order
from penstock.security.credentials import ScramCredential, ScramUser
from penstock.security.tokens import DelegationToken


class ResourceType(IntEnum):
    """The types of resources that have configurations, numbered as on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: int
    # A topic's name or a broker's id; the empty broker name is the default of all brokers.
    name: str


class OpenTransaction(NamedTuple):
    """A metadata transaction without its end. Its records have no effect yet."""

    name: str | None
    records: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    # The offset of the last replayed record, its epoch and the append time of its batch; -1 before any.
    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    # Finalized levels, without those at 0; kraft.version belongs to the quorum and is not here.
    features: Mapping[str, int] = field(default_factory=dict)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    acls: AclsImage = field(default_factory=AclsImage)
    client_quotas: Quotas = field(default_factory=dict)
    next_producer_id: int = 0
    scram_credentials: Mapping[ScramUser, ScramCredential] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    # Records that this software does not serve, in their order.
    unserved: tuple[UnservedRecord, ...] = ()
    # The metadata transaction that has begun before `offset` and has not ended.
    transaction: OpenTransaction | None = None

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings of a resource; empty if there are none."""
        return self.configs.get(ConfigResource(resource_type, name), {})

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.config(ResourceType.TOPIC, name)

    def offline_replicas(self, partition: Partition) -> list[int]:
        """The replicas on brokers that are not available, or in directories that are not."""
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if (broker := self.brokers.get(replica)) is None or broker.fenced or not broker.has_online(directory)
        ]

    def to_records(self) -> Iterator[Message]:
        """Records that build this image (except its offset) from an empty one, as in a snapshot.

        A snapshot takes the place of the log before it, so it cannot hold half of a transaction.
        """
        assert self.transaction is None, "a snapshot waits for the end of the metadata transaction"
        for name in sorted(self.features, key=lambda feature: (feature != METADATA_VERSION, feature)):
            yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        for broker_id in sorted(self.brokers):
            yield self.brokers[broker_id].to_record()
        for controller_id in sorted(self.controllers):
            yield self.controllers[controller_id].to_record()
        for topic in self.topics:
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for partition_id in sorted(topic.partitions):
                yield topic.partitions[partition_id].to_record(topic.topic_id, partition_id)
        for resource in sorted(self.configs):
            for name, value in sorted(self.configs[resource].items()):
                yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        if self.next_producer_id:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self._records_of_clients()
        yield from self.unserved

    def _records_of_clients(self) -> Iterator[Message]:
        """Who they are, what they may do, and how much."""
        for acl_id in sorted(self.acls.entries):
            yield self.acls.entries[acl_id].to_record(acl_id)
        for entity in sorted(self.client_quotas, key=order):
            for key, quota in sorted(self.client_quotas[entity].items()):
                yield quota_record(entity, key, quota)
        for user in sorted(self.scram_credentials):
            yield scram_record(user, self.scram_credentials[user])
        for token_id in sorted(self.delegation_tokens):
            yield token_record(self.delegation_tokens[token_id])

    def same_content(self, other: MetadataImage) -> bool:
        """Whether the images are equal except for the offset."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in (
                "features",
                "brokers",
                "controllers",
                "topics",
                "configs",
                "acls",
                "client_quotas",
                "next_producer_id",
                "scram_credentials",
                "delegation_tokens",
                "unserved",
                "transaction",
            )
        )


EMPTY_IMAGE = MetadataImage()


def scram_record(user: ScramUser, credential: ScramCredential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user.name,
        mechanism=user.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(renewer) for renewer in token.renewers],
        issue_timestamp=token.issued_at_ms,
        max_timestamp=token.max_at_ms,
        expiration_timestamp=token.expires_at_ms,
        token_id=token.token_id,
    )


def quota_record(entity: Entity, key: str, value: float | None) -> ClientQuotaRecord:
    """The record that sets a quota; None removes it."""
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value or 0.0,
        remove=value is None,
    )


class Metadata(Protocol):
    """Access to the committed metadata, for code that only reads it."""

    @property
    def image(self) -> MetadataImage: ...
