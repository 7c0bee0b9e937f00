"""Settings of the group coordinator: both protocols and committed offsets."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import INT_MAX, Scope, Type, at_least, between, distinct, one_of, setting


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    offsets_topic_num_partitions: int = setting(
        Type.INT, 50, at_least(1), "Number of partitions of __consumer_offsets. Do not change it once the topic exists."
    )
    offsets_topic_replication_factor: int = setting(
        Type.SHORT,
        3,
        at_least(1),
        "Replication factor of __consumer_offsets. The topic is created when there are this many brokers.",
    )
    offsets_topic_segment_bytes: int = setting(
        Type.INT, 104_857_600, at_least(1), "segment.bytes of __consumer_offsets; small segments load faster."
    )
    offsets_topic_compression_codec: int = setting(
        Type.INT, 0, between(0, 4), "The codec of __consumer_offsets, by number; 0 is none."
    )
    offsets_retention_minutes: int = setting(
        Type.INT, 10_080, at_least(1), "How long offsets are kept after their group becomes empty."
    )
    offsets_retention_check_interval_ms: int = setting(
        Type.LONG, 600_000, at_least(1), "How often the coordinator checks for expired offsets."
    )
    offsets_commit_timeout_ms: int = setting(
        Type.INT, 5000, at_least(1), "How long a commit may wait for the replicas of __consumer_offsets."
    )
    offsets_load_buffer_size: int = setting(
        Type.INT, 5_242_880, at_least(1), "How many bytes a coordinator reads at a time when it loads its groups."
    )
    offset_metadata_max_bytes: int = setting(
        Type.INT, 4096, at_least(0), "The maximum size of the metadata in an offset commit."
    )
    group_min_session_timeout_ms: int = setting(
        Type.INT, 6000, at_least(0), "The minimum session timeout of a member of a classic group."
    )
    group_max_session_timeout_ms: int = setting(
        Type.INT, 1_800_000, at_least(0), "The maximum session timeout of a member of a classic group."
    )
    group_initial_rebalance_delay_ms: int = setting(
        Type.INT,
        3000,
        at_least(0),
        "How long an empty classic group waits for members before its first rebalance; at least 10 ms.",
    )
    group_max_size: int = setting(Type.INT, INT_MAX, at_least(1), "The maximum number of members of a classic group.")
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Type.LIST,
        ("classic", "consumer"),
        distinct("classic", "consumer", "share", "streams", empty=False),
        "The enabled group protocols.",
    )
    group_consumer_session_timeout_ms: int = setting(
        Type.INT,
        45_000,
        at_least(1),
        "A member of a consumer-protocol group is removed if it sends no heartbeat for this long.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        Type.INT, 45_000, at_least(1), "The minimum session timeout that can be set on a group."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        Type.INT, 60_000, at_least(1), "The maximum session timeout that can be set on a group."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        Type.INT, 5000, at_least(1), "How often members of consumer-protocol groups send heartbeats."
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        Type.INT, 5000, at_least(1), "The minimum heartbeat interval that can be set on a group."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        Type.INT, 15_000, at_least(1), "The maximum heartbeat interval that can be set on a group."
    )
    group_consumer_max_size: int = setting(
        Type.INT, INT_MAX, at_least(1), "The maximum number of members of a consumer-protocol group."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Type.LIST,
        ("uniform", "range"),
        distinct("uniform", "range", empty=False),
        "The assignors of the consumer protocol. The first is the default.",
    )
    group_consumer_migration_policy: str = setting(
        Type.STRING,
        "bidirectional",
        one_of("disabled", "downgrade", "upgrade", "bidirectional", ignore_case=True),
        "Whether a group may change between the classic and the consumer protocol while it has members.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        Type.INT,
        600_000,
        at_least(10_000),
        "How often the coordinator evaluates regular-expression subscriptions again.",
    )
    group_consumer_assignment_interval_ms: int = setting(
        Type.INT,
        1000,
        at_least(0),
        "The minimum time between two assignments of a consumer-protocol group.",
        scope=Scope.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        Type.INT, 0, at_least(0), "The minimum assignment interval that can be set on a group."
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        Type.INT, 15_000, at_least(0), "The maximum assignment interval that can be set on a group."
    )
