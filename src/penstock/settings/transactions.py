"""Transactions and their coordinators."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import Scope, Type, at_least, setting


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    transaction_state_log_num_partitions: int = setting(
        Type.INT, 50, at_least(1), "Partitions of __transaction_state; must not change once the topic exists."
    )
    transaction_state_log_replication_factor: int = setting(
        Type.SHORT,
        3,
        at_least(1),
        "Replicas of __transaction_state; the topic waits until there are that many brokers.",
    )
    transaction_state_log_min_isr: int = setting(
        Type.INT, 2, at_least(1), "min.insync.replicas of __transaction_state."
    )
    transaction_state_log_segment_bytes: int = setting(
        Type.INT, 104_857_600, at_least(1), "segment.bytes of __transaction_state."
    )
    transaction_state_log_load_buffer_size: int = setting(
        Type.INT, 5_242_880, at_least(1), "Bytes read at a time when a coordinator loads its transactions."
    )
    transaction_max_timeout_ms: int = setting(
        Type.INT, 900_000, at_least(1), "The longest transaction timeout a producer may ask for."
    )
    transactional_id_expiration_ms: int = setting(
        Type.INT, 604_800_000, at_least(1), "An unused transactional id is forgotten after this long."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Type.INT, 10_000, at_least(1), "How often transactions are checked for their timeout."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Type.INT, 3_600_000, at_least(1), "How often unused transactional ids are looked for."
    )
    transaction_partition_verification_enable: bool = setting(
        Type.BOOLEAN,
        True,
        None,
        "Whether a leader asks the coordinator before the first transactional append of a producer.",
        scope=Scope.CLUSTER_WIDE,
    )
    transaction_two_phase_commit_enable: bool = setting(
        Type.BOOLEAN, False, None, "Whether producers may take part in transactions of another system."
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        Type.INT,
        20,
        at_least(1),
        "How long a leader waits before it asks again to add a partition to a transaction if the last one is not over.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        Type.INT, 100, at_least(0), "How long it does so before the producer is told to come again."
    )
