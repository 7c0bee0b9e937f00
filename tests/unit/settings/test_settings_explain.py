from __future__ import annotations

from penstock.settings.definition import Scope, Type
from penstock.settings.explain import (
    BrokerLayers,
    Source,
    Synonym,
    explain_broker,
    explain_broker_defaults,
    explain_group,
    explain_topic,
)
from penstock.settings.node import BROKER_SETTINGS
from penstock.settings.topic import TOPIC_SETTINGS

NOTHING = BrokerLayers({}, {}, {})


def test_an_untouched_topic_has_the_defaults() -> None:
    entries = {entry.name: entry for entry in explain_topic({}, NOTHING)}
    assert set(entries) == {name for name, definition in TOPIC_SETTINGS.items() if not definition.internal}
    retention = entries["retention.ms"]
    assert (retention.value, retention.source, retention.type) == ("604800000", Source.DEFAULT_CONFIG, Type.LONG)
    assert retention.synonyms == ()
    assert entries["segment.bytes"].synonyms == (Synonym("log.segment.bytes", "1073741824", Source.DEFAULT_CONFIG),)
    assert not retention.read_only


def test_a_topics_own_value_comes_first_then_every_layer_below() -> None:
    layers = BrokerLayers({"log.retention.hours": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    (entry,) = explain_topic({"retention.ms": "4"}, layers, ["retention.ms"])
    assert (entry.value, entry.source) == ("4", Source.TOPIC_CONFIG)
    assert [(synonym.value, synonym.source.name) for synonym in entry.synonyms] == [
        ("4", "TOPIC_CONFIG"),
        ("3", "DYNAMIC_BROKER_CONFIG"),
        ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("1", "STATIC_BROKER_CONFIG"),
        ("168", "DEFAULT_CONFIG"),
    ]
    (entry,) = explain_topic({}, layers, ["retention.ms"])
    assert (entry.value, entry.source) == ("3", Source.DYNAMIC_BROKER_CONFIG)


def test_a_groups_own_value_comes_first_then_every_layer_below() -> None:
    name = "group.consumer.assignment.interval.ms"
    layers = BrokerLayers({name: "1"}, {name: "2"}, {name: "3"})
    (entry,) = explain_group(
        {"consumer.assignment.interval.ms": "4"}, layers, ["consumer.assignment.interval.ms", "nonsense"]
    )
    assert (entry.value, entry.source, entry.read_only) == ("4", Source.GROUP_CONFIG, False)
    assert [(synonym.name, synonym.value, synonym.source.name) for synonym in entry.synonyms] == [
        ("consumer.assignment.interval.ms", "4", "GROUP_CONFIG"),
        (name, "3", "DYNAMIC_BROKER_CONFIG"),
        (name, "2", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        (name, "1", "STATIC_BROKER_CONFIG"),
        (name, "1000", "DEFAULT_CONFIG"),
    ]
    assert {entry.name: (entry.value, entry.source.name) for entry in explain_group({}, layers)} == {
        "consumer.assignment.interval.ms": ("3", "DYNAMIC_BROKER_CONFIG"),
        "consumer.heartbeat.interval.ms": ("5000", "DEFAULT_CONFIG"),
        "consumer.session.timeout.ms": ("45000", "DEFAULT_CONFIG"),
        "share.assignment.interval.ms": ("1000", "DEFAULT_CONFIG"),
        "share.auto.offset.reset": ("latest", "DEFAULT_CONFIG"),
        "share.delivery.count.limit": ("5", "DEFAULT_CONFIG"),
        "share.heartbeat.interval.ms": ("5000", "DEFAULT_CONFIG"),
        "share.isolation.level": ("read_uncommitted", "DEFAULT_CONFIG"),
        "share.partition.max.record.locks": ("2000", "DEFAULT_CONFIG"),
        "share.record.lock.duration.ms": ("30000", "DEFAULT_CONFIG"),
        "share.renew.acknowledge.enable": ("true", "DEFAULT_CONFIG"),
        "share.session.timeout.ms": ("45000", "DEFAULT_CONFIG"),
        "errors.deadletterqueue.topic.name": ("", "DEFAULT_CONFIG"),
        "errors.deadletterqueue.copy.record.enable": ("false", "DEFAULT_CONFIG"),
        "streams.acceptable.recovery.lag": ("10000", "DEFAULT_CONFIG"),
        "streams.assignment.interval.ms": ("1000", "DEFAULT_CONFIG"),
        "streams.assignor.name": ("sticky", "DEFAULT_CONFIG"),
        "streams.heartbeat.interval.ms": ("5000", "DEFAULT_CONFIG"),
        "streams.initial.rebalance.delay.ms": ("3000", "DEFAULT_CONFIG"),
        "streams.num.standby.replicas": ("0", "DEFAULT_CONFIG"),
        "streams.num.warmup.replicas": ("2", "DEFAULT_CONFIG"),
        "streams.rack.aware.assignment.tags": ("", "DEFAULT_CONFIG"),
        "streams.session.timeout.ms": ("45000", "DEFAULT_CONFIG"),
        "streams.task.offset.interval.ms": ("60000", "DEFAULT_CONFIG"),
    }


def test_a_brokers_settings() -> None:
    layers = BrokerLayers({"node.id": "1", "max.connections": "5"}, {"max.connections": "6"}, {})
    entries = {entry.name: entry for entry in explain_broker(layers)}
    assert set(entries) == {name for name, definition in BROKER_SETTINGS.items() if not definition.internal}
    assert (entries["node.id"].value, entries["node.id"].source) == ("1", Source.STATIC_BROKER_CONFIG)
    assert entries["node.id"].read_only
    assert (entries["max.connections"].value, entries["max.connections"].source) == (
        "6",
        Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.hours"].value == "168"
    assert all(entry.read_only == (BROKER_SETTINGS[name].scope is Scope.READ_ONLY) for name, entry in entries.items())


def test_the_default_broker_has_only_what_was_set() -> None:
    (entry,) = explain_broker_defaults({"max.connections": "6"})
    assert (entry.name, entry.value, entry.source) == ("max.connections", "6", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert explain_broker_defaults({"max.connections": "6"}, ["other"]) == []
