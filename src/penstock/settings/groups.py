"""Group coordination and committed offsets."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import INT_MAX, Scope, Type, at_least, between, distinct, one_of, setting


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    offsets_topic_num_partitions: int = setting(
        Type.INT, 50, at_least(1), "Partitions of __consumer_offsets; must not change once the topic exists."
    )
    offsets_topic_replication_factor: int = setting(
        Type.SHORT, 3, at_least(1), "Replicas of __consumer_offsets; the topic waits until there are that many brokers."
    )
    offsets_topic_segment_bytes: int = setting(
        Type.INT, 104_857_600, at_least(1), "segment.bytes of __consumer_offsets; small segments load faster."
    )
    offsets_topic_compression_codec: int = setting(
        Type.INT, 0, between(0, 4), "The codec __consumer_offsets is written with, by number; 0 is none."
    )
    offsets_retention_minutes: int = setting(
        Type.INT, 10_080, at_least(1), "How long offsets are kept after their group became empty."
    )
    offsets_retention_check_interval_ms: int = setting(
        Type.LONG, 600_000, at_least(1), "How often old offsets are looked for."
    )
    offsets_commit_timeout_ms: int = setting(
        Type.INT, 5000, at_least(1), "How long a commit may wait for the replicas of __consumer_offsets."
    )
    offsets_load_buffer_size: int = setting(
        Type.INT, 5_242_880, at_least(1), "Bytes read at a time when a coordinator loads its groups."
    )
    offset_metadata_max_bytes: int = setting(
        Type.INT, 4096, at_least(0), "The longest metadata text a commit may carry."
    )
    group_min_session_timeout_ms: int = setting(
        Type.INT, 6000, at_least(0), "The shortest session timeout a classic member may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        Type.INT, 1_800_000, at_least(0), "The longest session timeout a classic member may ask for."
    )
    group_initial_rebalance_delay_ms: int = setting(
        Type.INT,
        3000,
        at_least(0),
        "How long an empty classic group waits for members before its first rebalance; at least 10 ms.",
    )
    group_max_size: int = setting(Type.INT, INT_MAX, at_least(1), "The most members of a classic group.")
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Type.LIST,
        ("classic", "consumer"),
        distinct("classic", "consumer", "share", "streams", empty=False),
        "The group protocols that may be used.",
    )
    group_consumer_session_timeout_ms: int = setting(
        Type.INT, 45_000, at_least(1), "A consumer-protocol member not heard of for this long is removed."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        Type.INT, 45_000, at_least(1), "The lowest session timeout a group's own setting may have."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        Type.INT, 60_000, at_least(1), "The highest session timeout a group's own setting may have."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        Type.INT, 5000, at_least(1), "How often consumer-protocol members are told to send heartbeats."
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        Type.INT, 5000, at_least(1), "The lowest heartbeat interval a group's own setting may have."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        Type.INT, 15_000, at_least(1), "The highest heartbeat interval a group's own setting may have."
    )
    group_consumer_max_size: int = setting(
        Type.INT, INT_MAX, at_least(1), "The most members of a consumer-protocol group."
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Type.LIST,
        ("uniform", "range"),
        distinct("uniform", "range", empty=False),
        "The assignors of the consumer protocol, the default first.",
    )
    group_consumer_migration_policy: str = setting(
        Type.STRING,
        "bidirectional",
        one_of("disabled", "downgrade", "upgrade", "bidirectional", ignore_case=True),
        "Whether a group may change between the classic and the consumer protocol while it has members.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        Type.INT, 600_000, at_least(10_000), "How often a regular expression subscription is matched again."
    )
    group_consumer_assignment_interval_ms: int = setting(
        Type.INT,
        1000,
        at_least(0),
        "The least time between two assignments of a consumer-protocol group.",
        scope=Scope.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        Type.INT, 0, at_least(0), "The lowest assignment interval a group's own setting may have."
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        Type.INT, 15_000, at_least(0), "The highest assignment interval a group's own setting may have."
    )
