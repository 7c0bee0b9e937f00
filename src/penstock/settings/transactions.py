"""Settings of transactions and their coordinators."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import Scope, Type, at_least, boolean, integer, setting


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    transaction_state_log_num_partitions: int = integer(
        50, "Number of partitions of __transaction_state. Do not change it once the topic exists.", at_least(1)
    )
    transaction_state_log_replication_factor: int = setting(
        Type.SHORT,
        3,
        "Replication factor of __transaction_state. The topic is created when there are this many brokers.",
        at_least(1),
    )
    transaction_state_log_min_isr: int = integer(2, "min.insync.replicas of __transaction_state.", at_least(1))
    transaction_state_log_segment_bytes: int = integer(
        104_857_600, "segment.bytes of __transaction_state.", at_least(1)
    )
    transaction_state_log_load_buffer_size: int = integer(
        5_242_880, "How many bytes a coordinator reads at a time when it loads its transactions.", at_least(1)
    )
    transaction_max_timeout_ms: int = integer(
        900_000, "The maximum transaction timeout that a producer may request.", at_least(1)
    )
    transactional_id_expiration_ms: int = integer(
        604_800_000, "An unused transactional id expires after this time.", at_least(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often the coordinator checks for transactions that have timed out.", at_least(1)
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "How often the coordinator checks for expired transactional ids.", at_least(1)
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Whether a leader verifies a transaction with the coordinator before a producer's first transactional append.",
        scope=Scope.CLUSTER_WIDE,
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False, "Whether producers may use two-phase commit, to take part in transactions of another system."
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20,
        "How long a leader waits between retries to add a partition to a transaction while the previous one is ending.",
        at_least(1),
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100,
        "How long a leader retries to add a partition to a transaction before the producer has to retry.",
        at_least(0),
    )
