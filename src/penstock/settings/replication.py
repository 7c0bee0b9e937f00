"""Settings of replication between brokers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import LONG_MAX, Scope, at_least, boolean, integer, long, string


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    default_replication_factor: int = integer(
        1, "Replication factor of topics that are created without a given factor.", at_least(1)
    )
    replica_lag_time_max_ms: int = long(
        30_000, "A follower that has not caught up for this long is removed from the in-sync replicas.", at_least(1)
    )
    replica_fetch_max_bytes: int = integer(
        1_048_576, "How many bytes a follower requests per partition and fetch.", at_least(0)
    )
    replica_fetch_wait_max_ms: int = integer(
        500, "How long a follower's fetch may wait for data at the leader.", at_least(0)
    )
    replica_fetch_min_bytes: int = integer(1, "How many bytes a follower's fetch waits for at the leader.", at_least(0))
    replica_fetch_backoff_ms: int = integer(
        1000, "How long a follower waits after the fetch of a partition fails.", at_least(0)
    )
    replica_fetch_response_max_bytes: int = integer(
        10_485_760, "How many bytes a follower requests in a whole fetch.", at_least(0)
    )
    replica_socket_timeout_ms: int = integer(
        30_000, "How long a follower waits for a response from its leader.", at_least(1)
    )
    replica_socket_receive_buffer_bytes: int = integer(
        65_536, "SO_RCVBUF of a follower's connection; -1 for the operating system's default.", at_least(-1)
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5000, "How often high watermarks are written to disk.", at_least(1)
    )
    replica_selector_class: str | None = string(
        None,
        "How a consumer's preferred replica is selected. org.apache.kafka.common.replica.RackAwareReplicaSelector lets "
        "consumers read from a replica in their own rack.",
    )
    leader_replication_throttled_rate: int = long(
        LONG_MAX,
        "Bytes per second that this broker sends to followers of throttled replicas that are not in sync.",
        at_least(0),
        scope=Scope.PER_BROKER,
    )
    follower_replication_throttled_rate: int = long(
        LONG_MAX,
        "Bytes per second that this broker fetches for throttled replicas.",
        at_least(0),
        scope=Scope.PER_BROKER,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        LONG_MAX,
        "Bytes per second that this broker copies when replicas move between its log directories.",
        at_least(0),
        scope=Scope.PER_BROKER,
    )
    num_replica_alter_log_dirs_threads: int | None = integer(
        None,
        "How many replicas are copied between log directories at the same time; default: the number of directories.",
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, "Whether leadership automatically moves back to preferred replicas."
    )
    leader_imbalance_check_interval_seconds: int = long(
        300, "How often the controller checks the balance of leadership.", at_least(1)
    )
    penstock_balance_enable: bool = boolean(
        False,
        "Whether replicas and leaders move by themselves so that brokers carry similar loads, as with "
        "`penstock cluster balance`.",
        scope=Scope.CLUSTER_WIDE,
    )
    penstock_balance_interval_seconds: int = long(
        300, "How often the balance of the cluster is checked, if penstock.balance.enable is set.", at_least(1)
    )
    penstock_balance_max_moves: int = integer(
        5,
        "How many partitions move at the same time to balance the cluster.",
        at_least(1),
        scope=Scope.CLUSTER_WIDE,
    )
    unclean_leader_election_interval_ms: int = long(
        300_000,
        "How often the controller checks partitions without a leader for which unclean elections are allowed.",
        at_least(0),
    )
