"""Settings of transactions and their coordinators."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import Scope, Type, at_least, setting


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    transaction_state_log_num_partitions: int = setting(
        Type.INT,
        50,
        at_least(1),
        "Number of partitions of __transaction_state. Do not change it once the topic exists.",
    )
    transaction_state_log_replication_factor: int = setting(
        Type.SHORT,
        3,
        at_least(1),
        "Replication factor of __transaction_state. The topic is created when there are this many brokers.",
    )
    transaction_state_log_min_isr: int = setting(
        Type.INT, 2, at_least(1), "min.insync.replicas of __transaction_state."
    )
    transaction_state_log_segment_bytes: int = setting(
        Type.INT, 104_857_600, at_least(1), "segment.bytes of __transaction_state."
    )
    transaction_state_log_load_buffer_size: int = setting(
        Type.INT, 5_242_880, at_least(1), "How many bytes a coordinator reads at a time when it loads its transactions."
    )
    transaction_max_timeout_ms: int = setting(
        Type.INT, 900_000, at_least(1), "The maximum transaction timeout that a producer may request."
    )
    transactional_id_expiration_ms: int = setting(
        Type.INT, 604_800_000, at_least(1), "An unused transactional id expires after this time."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Type.INT, 10_000, at_least(1), "How often the coordinator checks for transactions that have timed out."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Type.INT, 3_600_000, at_least(1), "How often the coordinator checks for expired transactional ids."
    )
    transaction_partition_verification_enable: bool = setting(
        Type.BOOLEAN,
        True,
        None,
        "Whether a leader verifies a transaction with the coordinator before a producer's first transactional append.",
        scope=Scope.CLUSTER_WIDE,
    )
    transaction_two_phase_commit_enable: bool = setting(
        Type.BOOLEAN,
        False,
        None,
        "Whether producers may use two-phase commit, to take part in transactions of another system.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        Type.INT,
        20,
        at_least(1),
        "How long a leader waits between retries to add a partition to a transaction while the previous one is ending.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        Type.INT,
        100,
        at_least(0),
        "How long a leader retries to add a partition to a transaction before the producer has to retry.",
    )
