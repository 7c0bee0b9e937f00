"""The settings of a single group, which the alter-configs requests set under Kafka's names.

A number has its default and bounds in the broker's settings. A value must be within the bounds. If the bounds are
narrowed later, existing values are clamped to them, without any cleanup.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.definition import (
    Setting,
    at_least,
    attribute_of,
    boolean,
    distinct,
    integer,
    long,
    one_of,
    parse_overrides,
    settings_of,
    string,
    strings,
)
from penstock.settings.groups import GroupSettings
from penstock.settings.shares import LATEST, check_offset_reset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    consumer_session_timeout_ms: int = integer(
        45_000,
        "A member of the group is removed if it sends no heartbeat for this long (consumer protocol).",
        at_least(1),
        synonyms=["group.consumer.session.timeout.ms"],
    )
    consumer_heartbeat_interval_ms: int = integer(
        5000,
        "How often members of the group send heartbeats (consumer protocol).",
        at_least(1),
        synonyms=["group.consumer.heartbeat.interval.ms"],
    )
    consumer_assignment_interval_ms: int = integer(
        1000,
        "The minimum time between two assignments of the group.",
        at_least(0),
        synonyms=["group.consumer.assignment.interval.ms"],
    )
    share_session_timeout_ms: int = integer(
        45_000,
        "A member of the group is removed if it sends no heartbeat for this long (share groups).",
        at_least(1),
        synonyms=["group.share.session.timeout.ms"],
    )
    share_heartbeat_interval_ms: int = integer(
        5000,
        "How often members of the group send heartbeats (share groups).",
        at_least(1),
        synonyms=["group.share.heartbeat.interval.ms"],
    )
    share_assignment_interval_ms: int = integer(
        1000,
        "The minimum time between two assignments of the share group.",
        at_least(0),
        synonyms=["group.share.assignment.interval.ms"],
    )
    share_record_lock_duration_ms: int = integer(
        30_000,
        "How long a member may hold a record before it is delivered again.",
        at_least(1000),
        synonyms=["group.share.record.lock.duration.ms"],
    )
    share_delivery_count_limit: int = integer(
        5,
        "How often a record is delivered before it is given up.",
        at_least(2),
        synonyms=["group.share.delivery.count.limit"],
    )
    share_partition_max_record_locks: int = integer(
        2000,
        "How many records of a partition the group may hold at a time.",
        at_least(100),
        synonyms=["group.share.partition.max.record.locks"],
    )
    share_auto_offset_reset: str = string(
        LATEST,
        "Where the share group starts to read a partition: earliest, latest, or by_duration:PnDTnHnMn.nS before now.",
        check_offset_reset,
    )
    share_isolation_level: str = string(
        "read_uncommitted",
        "Whether members of the share group get records of open and aborted transactions.",
        one_of("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable: bool = boolean(
        True, "Whether members of the share group may extend the lock of a record."
    )
    errors_deadletterqueue_topic_name: str = string(
        "",
        "The topic for records that members of the share group rejected, or that were delivered too often. Empty: they "
        "are archived without a copy.",
    )
    errors_deadletterqueue_copy_record_enable: bool = boolean(
        False, "Whether the dead letter queue of the share group gets keys, values and headers of the records."
    )
    streams_session_timeout_ms: int = integer(
        45_000,
        "A member of the group is removed if it sends no heartbeat for this long (streams groups).",
        at_least(1),
        synonyms=["group.streams.session.timeout.ms"],
    )
    streams_heartbeat_interval_ms: int = integer(
        5000,
        "How often members of the group send heartbeats (streams groups).",
        at_least(1),
        synonyms=["group.streams.heartbeat.interval.ms"],
    )
    streams_assignment_interval_ms: int = integer(
        1000,
        "The minimum time between two assignments of the streams group.",
        at_least(0),
        synonyms=["group.streams.assignment.interval.ms"],
    )
    streams_initial_rebalance_delay_ms: int = integer(
        3000,
        "How long the streams group, while it is empty, waits for members before its first assignment.",
        at_least(0),
        synonyms=["group.streams.initial.rebalance.delay.ms"],
    )
    streams_num_standby_replicas: int = integer(
        0,
        "How many standbys a task of the streams group has, if it has state.",
        at_least(0),
        synonyms=["group.streams.num.standby.replicas"],
    )
    streams_num_warmup_replicas: int = integer(
        2,
        "How many warm-up tasks the streams group may have. As in Kafka 4.4, none are assigned yet.",
        at_least(0),
        synonyms=["group.streams.num.warmup.replicas"],
    )
    streams_task_offset_interval_ms: int = integer(
        60_000,
        "How often members of the streams group report how far their tasks have read.",
        at_least(1),
        synonyms=["group.streams.task.offset.interval.ms"],
    )
    streams_acceptable_recovery_lag: int = long(
        10_000,
        "How far behind a member of the streams group may be and still count as caught up.",
        at_least(0),
        synonyms=["group.streams.acceptable.recovery.lag"],
    )
    streams_rack_aware_assignment_tags: tuple[str, ...] = strings(
        (),
        "The client tags that members of the streams group must have.",
        distinct(),
        synonyms=["group.streams.rack.aware.assignment.tags"],
    )
    streams_assignor_name: str = string("sticky", "The assignor of the streams group.", one_of("sticky"))

    @classmethod
    def broker_defaults(cls, broker: GroupSettings) -> GroupConfig:
        """Return the settings of a group without overrides."""
        return cls(**{name: getattr(broker, attribute) for name, attribute in _INHERITED.items()})

    @classmethod
    def check(cls, overrides: Mapping[str, str], broker: GroupSettings) -> None:
        """Raise KafkaError(INVALID_CONFIG) if the overrides cannot be set on a group."""
        for name in overrides:
            if name not in GROUP_SETTINGS and name.startswith(_NOT_USED):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Group config {name} is not used here")
        values = parse_overrides(overrides, GROUP_SETTINGS, "group")
        for name in overrides:
            low, high = _bounds(name, broker)
            value = values[attribute_of(name)]
            if (low is not None and value < low) or (high is not None and value > high):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be {_range(low, high)}.")
        result = dataclasses.replace(cls.broker_defaults(broker), **values)
        for kind, session_ms, heartbeat_ms in (
            ("consumer", result.consumer_session_timeout_ms, result.consumer_heartbeat_interval_ms),
            ("share", result.share_session_timeout_ms, result.share_heartbeat_interval_ms),
            ("streams", result.streams_session_timeout_ms, result.streams_heartbeat_interval_ms),
        ):
            if session_ms <= heartbeat_ms:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms",
                )

    @classmethod
    def in_force(cls, overrides: Mapping[str, str], broker: GroupSettings) -> GroupConfig:
        """Return the effective settings of a group. The overrides may come from other bounds or another release."""
        values = {}
        for name, definition in GROUP_SETTINGS.items():
            if name in overrides:
                value = definition.parse(overrides[name])
                low, high = _bounds(name, broker)
                value = value if low is None else max(value, low)
                value = value if high is None else min(value, high)
                values[attribute_of(name)] = value
        return dataclasses.replace(cls.broker_defaults(broker), **values)


GROUP_SETTINGS: Final[dict[str, Setting]] = settings_of(GroupConfig)

# The settings whose default and bounds are those of the broker, by attribute: the attribute of the broker.
_INHERITED: Final = {
    attribute_of(name): attribute_of(definition.synonyms[0][0])
    for name, definition in GROUP_SETTINGS.items()
    if definition.synonyms
}

# Kafka's settings about threads.
_NOT_USED: Final = (
    "streams.assignor.offload.enable",
    "consumer.assignor.offload.enable",
    "share.assignor.offload.enable",
)


def _bounds(name: str, broker: GroupSettings) -> tuple[int | None, int | None]:
    """Return the least and the greatest value that the broker allows; None where it has no setting for that."""
    if attribute_of(name) not in _INHERITED:
        return None, None
    kind, _, what = attribute_of(name).partition("_")
    what = what.removeprefix("num_")
    low: int | None = getattr(broker, f"group_{kind}_min_{what}", None)
    high: int | None = getattr(broker, f"group_{kind}_max_{what}", None)
    return low, high


def _range(low: int | None, high: int | None) -> str:
    if low is None:
        return f"less than or equal to {high}"
    if high is None:
        return f"greater than or equal to {low}"
    return f"in the range {low} to {high} inclusive"
