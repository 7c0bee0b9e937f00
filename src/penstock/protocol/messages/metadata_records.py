"""The records of `__cluster_metadata`: every change of the cluster consists of one or more of them.

A record's key is its type number on the wire. Missing numbers belong to records that Kafka no longer writes.
"""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.messages.broker_registration import Feature, Listener
from penstock.protocol.primitives import Float64, Int8, Int16, Int32, Int64, Uuid


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    broker_id: Int32 = field("0+")
    is_migrating_zk_broker: bool = field("2+")
    incarnation_id: Uuid = field("0+")
    broker_epoch: Int64 = field("0+")
    end_points: list[Listener] = field("0+")
    features: list[Feature] = field("0+")
    rack: str | None = field("0+", nullable="0+")
    fenced: bool = field("0+", default=True)
    in_controlled_shutdown: bool = field("1+")
    log_dirs: list[Uuid] = field("3+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+")


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    name: str = field("0+")
    topic_id: Uuid = field("0+")


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    partition_id: Int32 = field("0+", default=-1)
    topic_id: Uuid = field("0+")
    replicas: list[Int32] = field("0+")
    isr: list[Int32] = field("0+")
    removing_replicas: list[Int32] = field("0+")
    adding_replicas: list[Int32] = field("0+")
    leader: Int32 = field("0+", default=-1)
    leader_recovery_state: Int8 = field("0+", tag=0)
    leader_epoch: Int32 = field("0+", default=-1)
    partition_epoch: Int32 = field("0+", default=-1)
    directories: list[Uuid] = field("1+")
    eligible_leader_replicas: list[Int32] | None = field("2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = field("2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    partition_id: Int32 = field("0+", default=-1)
    topic_id: Uuid = field("0+")
    isr: list[Int32] | None = field("0+", nullable="0+", default=None, tag=0)
    leader: Int32 = field("0+", default=-2, tag=1)
    replicas: list[Int32] | None = field("0+", nullable="0+", default=None, tag=2)
    removing_replicas: list[Int32] | None = field("0+", nullable="0+", default=None, tag=3)
    adding_replicas: list[Int32] | None = field("0+", nullable="0+", default=None, tag=4)
    leader_recovery_state: Int8 = field("0+", default=-1, tag=5)
    directories: list[Uuid] | None = field("1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = field("2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = field("2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    id: Int32 = field("0+")
    epoch: Int64 = field("0+")


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    id: Int32 = field("0+")
    epoch: Int64 = field("0+")


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    topic_id: Uuid = field("0+")


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    owner: str = field("0+")
    requester: str = field("0+")
    renewers: list[str] = field("0+")
    issue_timestamp: Int64 = field("0+")
    max_timestamp: Int64 = field("0+")
    expiration_timestamp: Int64 = field("0+")
    token_id: str = field("0+")


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    name: str = field("0+")
    mechanism: Int8 = field("0+")
    salt: bytes = field("0+")
    stored_key: bytes = field("0+")
    server_key: bytes = field("0+")
    iterations: Int32 = field("0+")


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    name: str = field("0+")
    feature_level: Int16 = field("0+")


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    entity: list[EntityData] = field("0+")
    key: str = field("0+")
    value: Float64 = field("0+")
    remove: bool = field("0+")


class EntityData(Message):
    entity_type: str = field("0+")
    entity_name: str | None = field("0+", nullable="0+")


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+", default=-1)
    next_producer_id: Int64 = field("0+")


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    broker_id: Int32 = field("0+")
    broker_epoch: Int64 = field("0+")
    fenced: Int8 = field("0+", tag=0)
    in_controlled_shutdown: Int8 = field("1+", tag=1)
    log_dirs: list[Uuid] = field("2+", tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    id: Uuid = field("0+")
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    pattern_type: Int8 = field("0+")
    principal: str = field("0+")
    host: str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    id: Uuid = field("0+")


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    """Nothing but its name."""


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+"):
    zk_migration_state: Int8 = field("0+")


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    name: str = field("0+")
    mechanism: Int8 = field("0+")


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    name: str | None = field("0+", nullable="0+", default=None, tag=0)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    """Nothing but its name."""


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    reason: str | None = field("0+", nullable="0+", default=None, tag=0)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    token_id: str = field("0+")


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    controller_id: Int32 = field("0+")
    incarnation_id: Uuid = field("0+")
    zk_migration_ready: bool = field("0+")
    end_points: list[Listener] = field("0+")
    features: list[Feature] = field("0+")


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    topic_name: str = field("0+")


class UnregisterControllerRecord(Message, key=29, versions="0", flexible="0+"):
    controller_id: Int32 = field("0+")


RECORD_TYPES: dict[int, type[Message]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
    29: UnregisterControllerRecord,
}
