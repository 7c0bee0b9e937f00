"""The coordinator's settings are the node's, by Kafka's names."""

from __future__ import annotations

import pytest

from penstock.groups.settings import GATHERING_MS, GroupCoordinatorSettings
from penstock.settings.group_config import GroupConfig
from penstock.settings.node import NodeSettings
from penstock.settings.shares import offset_reset

QUORUM = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "log.dirs": "/x",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


def test_defaults_are_the_nodes() -> None:
    assert GroupCoordinatorSettings.of(NodeSettings.from_properties(QUORUM)) == GroupCoordinatorSettings()


def test_a_group_is_held_within_the_bounds_of_now() -> None:
    node = NodeSettings.from_properties({**QUORUM, "group.consumer.max.session.timeout.ms": "50000"})
    overrides = {
        "consumer.session.timeout.ms": "60000",
        "consumer.heartbeat.interval.ms": "1",
        "share.session.timeout.ms": "7",
        "share.delivery.count.limit": "3",
        "share.auto.offset.reset": "earliest",
    }
    config = GroupConfig.in_force(overrides, node)
    assert config == GroupConfig(
        consumer_session_timeout_ms=50_000, share_delivery_count_limit=3, share_auto_offset_reset="earliest"
    )
    settings = GroupCoordinatorSettings.of(node).with_config(config)
    assert settings.consumer_session_timeout_ms == 50_000
    assert settings.share_session_timeout_ms == 45_000
    assert settings.with_config(GroupConfig.broker_defaults(node)) == GroupCoordinatorSettings.of(node)


def test_properties() -> None:
    node = NodeSettings.from_properties(
        {
            **QUORUM,
            "group.initial.rebalance.delay.ms": "0",
            "offsets.retention.minutes": "2",
            "group.consumer.assignors": "range",
            "group.consumer.migration.policy": "Upgrade",
            "group.consumer.assignment.interval.ms": "7",
        }
    )
    settings = GroupCoordinatorSettings.of(node)
    assert settings.initial_rebalance_delay_ms == GATHERING_MS
    assert settings.offsets_retention_ms == 120_000
    assert settings.consumer_assignors == ("range",)
    assert settings.assignment_interval_ms == 7
    assert settings.allows_upgrade
    assert not settings.allows_downgrade


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2M3.5S", 86_523_500),
        ("by_duration:P", None),
        ("by_duration:P1DT", None),
        ("by_duration:-PT1H", None),
        ("none", None),
    ],
)
def test_where_a_share_group_starts(text: str, value: str | int | None) -> None:
    assert offset_reset(text) == value
