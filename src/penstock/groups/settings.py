"""Settings of the group coordinator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from penstock.settings.group_config import GroupConfig
from penstock.settings.groups import GroupSettings

# Members of a service that start together join a few milliseconds apart. Even without an initial delay they belong in
# one generation: a member that had all partitions for a moment would have to give some up again, and a client learns
# that only with its next heartbeat. (Kafka completes the first rebalance by a timer, which takes about as long.)
GATHERING_MS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorSettings:
    """Settings of the coordinator, with Kafka's defaults."""

    # -- the classic protocol

    # group.initial.rebalance.delay.ms: how long an empty group waits for more members; extended while they join.
    initial_rebalance_delay_ms: int = 3000
    # group.min.session.timeout.ms, group.max.session.timeout.ms
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    # group.max.size
    max_size: int = 2**31 - 1
    # A new member cannot send heartbeats until its first JoinGroup is answered. If that takes longer than this, it is
    # removed: otherwise members whose clients have given up would stay. Kafka has no setting for it.
    new_member_join_timeout_ms: int = 300_000

    # -- the consumer protocol

    # group.consumer.session.timeout.ms
    consumer_session_timeout_ms: int = 45_000
    # group.consumer.heartbeat.interval.ms
    consumer_heartbeat_interval_ms: int = 5000
    # group.consumer.max.size
    consumer_max_size: int = 2**31 - 1
    # group.consumer.assignors: the default first.
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    # group.consumer.migration.policy
    migration_policy: str = "bidirectional"
    # group.consumer.regex.refresh.interval.ms
    regex_refresh_interval_ms: int = 600_000
    # The minimum interval between evaluations of expressions, however often topics change. Kafka has no setting for it.
    regex_refresh_min_interval_ms: int = 10_000
    # group.consumer.assignment.interval.ms: members that join together are assigned together.
    assignment_interval_ms: int = 1000

    # -- share groups

    # group.share.session.timeout.ms
    share_session_timeout_ms: int = 45_000
    # group.share.heartbeat.interval.ms
    share_heartbeat_interval_ms: int = 5000
    # group.share.max.size
    share_max_size: int = 200
    # group.share.assignment.interval.ms
    share_assignment_interval_ms: int = 1000
    # group.share.initialize.retry.interval.ms
    share_initialize_retry_interval_ms: int = 30_000

    # -- streams groups

    # group.streams.session.timeout.ms
    streams_session_timeout_ms: int = 45_000
    # group.streams.heartbeat.interval.ms
    streams_heartbeat_interval_ms: int = 5000
    # group.streams.max.size
    streams_max_size: int = 2**31 - 1
    # group.streams.assignment.interval.ms
    streams_assignment_interval_ms: int = 1000
    # group.streams.initial.rebalance.delay.ms: how long an empty group waits for more members.
    streams_initial_rebalance_delay_ms: int = 3000
    # group.streams.num.standby.replicas
    streams_num_standby_replicas: int = 0
    # group.streams.task.offset.interval.ms
    streams_task_offset_interval_ms: int = 60_000
    # group.streams.acceptable.recovery.lag
    streams_acceptable_recovery_lag: int = 10_000
    # group.streams.rack.aware.assignment.tags
    streams_rack_aware_assignment_tags: tuple[str, ...] = ()

    # -- offsets

    # offset.metadata.max.bytes
    offset_metadata_max_bytes: int = 4096
    # offsets.retention.minutes
    offsets_retention_ms: int = 10_080 * 60_000
    # offsets.retention.check.interval.ms
    offsets_retention_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, node: GroupSettings) -> GroupCoordinatorSettings:
        return cls(
            initial_rebalance_delay_ms=max(node.group_initial_rebalance_delay_ms, GATHERING_MS),
            min_session_timeout_ms=node.group_min_session_timeout_ms,
            max_session_timeout_ms=node.group_max_session_timeout_ms,
            max_size=node.group_max_size,
            consumer_session_timeout_ms=node.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=node.group_consumer_heartbeat_interval_ms,
            consumer_max_size=node.group_consumer_max_size,
            consumer_assignors=node.group_consumer_assignors,
            migration_policy=node.group_consumer_migration_policy.lower(),
            regex_refresh_interval_ms=node.group_consumer_regex_refresh_interval_ms,
            assignment_interval_ms=node.group_consumer_assignment_interval_ms,
            share_session_timeout_ms=node.group_share_session_timeout_ms,
            share_heartbeat_interval_ms=node.group_share_heartbeat_interval_ms,
            share_max_size=node.group_share_max_size,
            share_assignment_interval_ms=node.group_share_assignment_interval_ms,
            share_initialize_retry_interval_ms=node.group_share_initialize_retry_interval_ms,
            streams_session_timeout_ms=node.group_streams_session_timeout_ms,
            streams_heartbeat_interval_ms=node.group_streams_heartbeat_interval_ms,
            streams_max_size=node.group_streams_max_size,
            streams_assignment_interval_ms=node.group_streams_assignment_interval_ms,
            streams_initial_rebalance_delay_ms=node.group_streams_initial_rebalance_delay_ms,
            streams_num_standby_replicas=node.group_streams_num_standby_replicas,
            streams_task_offset_interval_ms=node.group_streams_task_offset_interval_ms,
            streams_acceptable_recovery_lag=node.group_streams_acceptable_recovery_lag,
            streams_rack_aware_assignment_tags=node.group_streams_rack_aware_assignment_tags,
            offset_metadata_max_bytes=node.offset_metadata_max_bytes,
            offsets_retention_ms=node.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=node.offsets_retention_check_interval_ms,
        )

    def with_config(self, config: GroupConfig) -> GroupCoordinatorSettings:
        """Return the settings of a group that has its own configuration."""
        return replace(
            self,
            consumer_session_timeout_ms=config.consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
            assignment_interval_ms=config.consumer_assignment_interval_ms,
            share_session_timeout_ms=config.share_session_timeout_ms,
            share_heartbeat_interval_ms=config.share_heartbeat_interval_ms,
            share_assignment_interval_ms=config.share_assignment_interval_ms,
            streams_session_timeout_ms=config.streams_session_timeout_ms,
            streams_heartbeat_interval_ms=config.streams_heartbeat_interval_ms,
            streams_assignment_interval_ms=config.streams_assignment_interval_ms,
            streams_initial_rebalance_delay_ms=config.streams_initial_rebalance_delay_ms,
            streams_num_standby_replicas=config.streams_num_standby_replicas,
            streams_task_offset_interval_ms=config.streams_task_offset_interval_ms,
            streams_acceptable_recovery_lag=config.streams_acceptable_recovery_lag,
            streams_rack_aware_assignment_tags=config.streams_rack_aware_assignment_tags,
        )

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def allows_downgrade(self) -> bool:
        return self.migration_policy in ("downgrade", "bidirectional")
