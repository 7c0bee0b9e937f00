"""Settings of streams groups: the members of Kafka Streams applications."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import INT_MAX, Scope, at_least, distinct, integer, long, strings


@dataclass(frozen=True, kw_only=True)
class StreamsSettings:
    group_streams_session_timeout_ms: int = integer(
        45_000, "A member of a streams group is removed if it sends no heartbeat for this long.", at_least(1)
    )
    group_streams_min_session_timeout_ms: int = integer(
        45_000, "The minimum session timeout that can be set on a streams group.", at_least(1)
    )
    group_streams_max_session_timeout_ms: int = integer(
        60_000, "The maximum session timeout that can be set on a streams group.", at_least(1)
    )
    group_streams_heartbeat_interval_ms: int = integer(
        5000, "How often members of streams groups send heartbeats.", at_least(1)
    )
    group_streams_min_heartbeat_interval_ms: int = integer(
        5000, "The minimum heartbeat interval that can be set on a streams group.", at_least(1)
    )
    group_streams_max_heartbeat_interval_ms: int = integer(
        15_000, "The maximum heartbeat interval that can be set on a streams group.", at_least(1)
    )
    group_streams_max_size: int = integer(INT_MAX, "The maximum number of members of a streams group.", at_least(1))
    group_streams_num_standby_replicas: int = integer(
        0, "How many standbys a task with state has, on other processes.", at_least(0)
    )
    group_streams_max_standby_replicas: int = integer(
        2, "The maximum number of standbys that can be set on a streams group.", at_least(0)
    )
    group_streams_initial_rebalance_delay_ms: int = integer(
        3000, "How long an empty streams group waits for members before its first assignment.", at_least(0)
    )
    group_streams_assignment_interval_ms: int = integer(
        1000, "The minimum time between two assignments of a streams group.", at_least(0), scope=Scope.CLUSTER_WIDE
    )
    group_streams_min_assignment_interval_ms: int = integer(
        0, "The minimum assignment interval that can be set on a streams group.", at_least(0)
    )
    group_streams_max_assignment_interval_ms: int = integer(
        15_000, "The maximum assignment interval that can be set on a streams group.", at_least(0)
    )
    group_streams_assignors: tuple[str, ...] = strings(
        ("sticky",), "The assignor of streams groups.", distinct("sticky", empty=False)
    )
    group_streams_task_offset_interval_ms: int = integer(
        60_000, "How often members of streams groups report how far their tasks have read.", at_least(1)
    )
    group_streams_min_task_offset_interval_ms: int = integer(
        15_000, "The minimum task offset interval that can be set on a streams group.", at_least(1)
    )
    group_streams_num_warmup_replicas: int = integer(
        2, "How many warm-up tasks a streams group may have. As in Kafka 4.4, none are assigned yet.", at_least(0)
    )
    group_streams_max_warmup_replicas: int = integer(
        20, "The maximum number of warm-up tasks that can be set on a streams group.", at_least(0)
    )
    group_streams_acceptable_recovery_lag: int = long(
        10_000, "How far behind a member of a streams group may be and still count as caught up.", at_least(0)
    )
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = strings(
        (), "The client tags that members of streams groups must have. Standbys are not spread by them.", distinct()
    )
