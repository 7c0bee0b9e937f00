"""The settings of a single group, which the alter-configs requests set under Kafka's names.

Each setting has a default and bounds in the broker's settings. A value must be within the bounds. If the bounds are
narrowed later, existing values are clamped to them, without any cleanup.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.definition import Setting, at_least, attribute_of, integer, parse_overrides, settings_of
from penstock.settings.groups import GroupSettings


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

    @classmethod
    def of_broker(cls, broker: GroupSettings) -> GroupConfig:
        """Return the settings of a group without overrides."""
        return cls(
            consumer_session_timeout_ms=broker.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=broker.group_consumer_heartbeat_interval_ms,
            consumer_assignment_interval_ms=broker.group_consumer_assignment_interval_ms,
        )

    @classmethod
    def check(cls, overrides: Mapping[str, str], broker: GroupSettings) -> None:
        """Raise KafkaError(INVALID_CONFIG) if the overrides cannot be set on a group."""
        for name in overrides:
            if name not in GROUP_SETTINGS and name.startswith(_NOT_USED):
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Group config {name} is not used here")
        values = parse_overrides(overrides, GROUP_SETTINGS, "group")
        for name in overrides:
            low, high = _bounds(name, broker)
            if not low <= values[attribute_of(name)] <= high:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be in the range {low} to {high} inclusive.")
        result = dataclasses.replace(cls.of_broker(broker), **values)
        if result.consumer_session_timeout_ms <= result.consumer_heartbeat_interval_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
            )

    @classmethod
    def in_force(cls, overrides: Mapping[str, str], broker: GroupSettings) -> GroupConfig:
        """Return the effective settings of a group. The overrides may come from other bounds or another release."""
        values = {}
        for name, definition in GROUP_SETTINGS.items():
            if name in overrides:
                low, high = _bounds(name, broker)
                values[attribute_of(name)] = min(max(definition.parse(overrides[name]), low), high)
        return dataclasses.replace(cls.of_broker(broker), **values)


GROUP_SETTINGS: Final[dict[str, Setting]] = settings_of(GroupConfig)

# Kafka's settings for group types that are not supported, and one about threads.
_NOT_USED: Final = ("share.", "streams.", "errors.deadletterqueue.", "consumer.assignor.offload.enable")


def _bounds(name: str, broker: GroupSettings) -> tuple[int, int]:
    attribute = attribute_of(name).removeprefix("consumer_")
    low: int = getattr(broker, f"group_consumer_min_{attribute}")
    high: int = getattr(broker, f"group_consumer_max_{attribute}")
    return low, high
