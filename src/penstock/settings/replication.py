"""Settings of replication between brokers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import LONG_MAX, Scope, Type, at_least, setting


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    default_replication_factor: int = setting(
        Type.INT, 1, at_least(1), "Replication factor of topics that are created without a given factor."
    )
    replica_lag_time_max_ms: int = setting(
        Type.LONG,
        30_000,
        at_least(1),
        "A follower that has not caught up for this long is removed from the in-sync replicas.",
    )
    replica_fetch_max_bytes: int = setting(
        Type.INT, 1_048_576, at_least(0), "How many bytes a follower requests per partition and fetch."
    )
    replica_fetch_wait_max_ms: int = setting(
        Type.INT, 500, at_least(0), "How long a follower's fetch may wait for data at the leader."
    )
    replica_fetch_min_bytes: int = setting(
        Type.INT, 1, at_least(0), "How many bytes a follower's fetch waits for at the leader."
    )
    replica_fetch_backoff_ms: int = setting(
        Type.INT, 1000, at_least(0), "How long a follower waits after the fetch of a partition fails."
    )
    replica_fetch_response_max_bytes: int = setting(
        Type.INT, 10_485_760, at_least(0), "How many bytes a follower requests in a whole fetch."
    )
    replica_socket_timeout_ms: int = setting(
        Type.INT, 30_000, at_least(1), "How long a follower waits for a response from its leader."
    )
    replica_socket_receive_buffer_bytes: int = setting(
        Type.INT, 65_536, at_least(-1), "SO_RCVBUF of a follower's connection; -1 for the operating system's default."
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        Type.LONG, 5000, at_least(1), "How often high watermarks are written to disk."
    )
    replica_selector_class: str | None = setting(
        Type.STRING,
        None,
        None,
        "How a consumer's preferred replica is selected. org.apache.kafka.common.replica.RackAwareReplicaSelector lets "
        "consumers read from a replica in their own rack.",
    )
    leader_replication_throttled_rate: int = setting(
        Type.LONG,
        LONG_MAX,
        at_least(0),
        "Bytes per second that this broker sends to followers of throttled replicas that are not in sync.",
        scope=Scope.PER_BROKER,
    )
    follower_replication_throttled_rate: int = setting(
        Type.LONG,
        LONG_MAX,
        at_least(0),
        "Bytes per second that this broker fetches for throttled replicas.",
        scope=Scope.PER_BROKER,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        Type.LONG,
        LONG_MAX,
        at_least(0),
        "Bytes per second that this broker copies when replicas move between its log directories.",
        scope=Scope.PER_BROKER,
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        Type.INT,
        None,
        None,
        "How many replicas are copied between log directories at the same time; default: the number of directories.",
    )
    auto_leader_rebalance_enable: bool = setting(
        Type.BOOLEAN, True, None, "Whether leadership automatically moves back to preferred replicas."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        Type.LONG, 300, at_least(1), "How often the controller checks the balance of leadership."
    )
    unclean_leader_election_interval_ms: int = setting(
        Type.LONG,
        300_000,
        at_least(0),
        "How often the controller checks partitions without a leader for which unclean elections are allowed.",
    )
