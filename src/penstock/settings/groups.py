"""Settings of the group coordinator: all protocols and committed offsets."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import (
    INT_MAX,
    Scope,
    Type,
    at_least,
    between,
    distinct,
    integer,
    long,
    one_of,
    setting,
    string,
    strings,
)
from penstock.settings.shares import ShareSettings
from penstock.settings.streams import StreamsSettings


@dataclass(frozen=True, kw_only=True)
class GroupSettings(ShareSettings, StreamsSettings):
    offsets_topic_num_partitions: int = integer(
        50, "Number of partitions of __consumer_offsets. Do not change it once the topic exists.", at_least(1)
    )
    offsets_topic_replication_factor: int = setting(
        Type.SHORT,
        3,
        "Replication factor of __consumer_offsets. The topic is created when there are this many brokers.",
        at_least(1),
    )
    offsets_topic_segment_bytes: int = integer(
        104_857_600, "segment.bytes of __consumer_offsets; small segments load faster.", at_least(1)
    )
    offsets_topic_compression_codec: int = integer(
        0, "The codec of __consumer_offsets, by number; 0 is none.", between(0, 4)
    )
    offsets_retention_minutes: int = integer(
        10_080, "How long offsets are kept after their group becomes empty.", at_least(1)
    )
    offsets_retention_check_interval_ms: int = long(
        600_000, "How often the coordinator checks for expired offsets.", at_least(1)
    )
    offsets_commit_timeout_ms: int = integer(
        5000, "How long a commit may wait for the replicas of __consumer_offsets.", at_least(1)
    )
    offsets_load_buffer_size: int = integer(
        5_242_880, "How many bytes a coordinator reads at a time when it loads its groups.", at_least(1)
    )
    offset_metadata_max_bytes: int = integer(4096, "The maximum size of the metadata in an offset commit.", at_least(0))
    group_min_session_timeout_ms: int = integer(
        6000, "The minimum session timeout of a member of a classic group.", at_least(0)
    )
    group_max_session_timeout_ms: int = integer(
        1_800_000, "The maximum session timeout of a member of a classic group.", at_least(0)
    )
    group_initial_rebalance_delay_ms: int = integer(
        3000,
        "How long an empty classic group waits for members before its first rebalance; at least 10 ms.",
        at_least(0),
    )
    group_max_size: int = integer(INT_MAX, "The maximum number of members of a classic group.", at_least(1))
    group_coordinator_rebalance_protocols: tuple[str, ...] = strings(
        ("classic", "consumer"),
        "The enabled group protocols.",
        distinct("classic", "consumer", "share", "streams", empty=False),
    )
    group_consumer_session_timeout_ms: int = integer(
        45_000, "A member of a consumer-protocol group is removed if it sends no heartbeat for this long.", at_least(1)
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45_000, "The minimum session timeout that can be set on a group.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60_000, "The maximum session timeout that can be set on a group.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5000, "How often members of consumer-protocol groups send heartbeats.", at_least(1)
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5000, "The minimum heartbeat interval that can be set on a group.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15_000, "The maximum heartbeat interval that can be set on a group.", at_least(1)
    )
    group_consumer_max_size: int = integer(
        INT_MAX, "The maximum number of members of a consumer-protocol group.", at_least(1)
    )
    group_consumer_assignors: tuple[str, ...] = strings(
        ("uniform", "range"),
        "The assignors of the consumer protocol. The first is the default.",
        distinct("uniform", "range", empty=False),
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Whether a group may change between the classic and the consumer protocol while it has members.",
        one_of("disabled", "downgrade", "upgrade", "bidirectional", ignore_case=True),
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        600_000, "How often the coordinator evaluates regular-expression subscriptions again.", at_least(10_000)
    )
    group_consumer_assignment_interval_ms: int = integer(
        1000,
        "The minimum time between two assignments of a consumer-protocol group.",
        at_least(0),
        scope=Scope.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        0, "The minimum assignment interval that can be set on a group.", at_least(0)
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        15_000, "The maximum assignment interval that can be set on a group.", at_least(0)
    )
