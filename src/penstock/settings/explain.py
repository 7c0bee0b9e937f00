"""The source of a setting's value, as DescribeConfigs and the CreateTopics response report it.

A broker setting may be set for one broker, for all brokers, in the broker's file, or not at all. A topic setting may be
set on the topic; otherwise it has the value of its broker setting. The same holds for groups. The synonyms of an entry
are that chain as far as it is set, with the effective one first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from penstock.settings.client_metrics import CLIENT_METRICS_SETTINGS
from penstock.settings.definition import Scope, Setting, Type
from penstock.settings.group_config import GROUP_SETTINGS
from penstock.settings.known import UNUSED_DYNAMIC, unknown_setting
from penstock.settings.node import BROKER_SETTINGS, topic_defaults
from penstock.settings.tls import general_tls_name, is_of_listener_tls, listener_tls_setting
from penstock.settings.topic import TOPIC_SETTINGS


class Source(IntEnum):
    """The source of a value, numbered as on the wire."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Explained(NamedTuple):
    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: Type
    documentation: str
    synonyms: tuple[Synonym, ...]


class BrokerLayers(NamedTuple):
    """The settings of brokers, in ascending order of precedence."""

    static: Mapping[str, str]
    cluster: Mapping[str, str]
    broker: Mapping[str, str]

    @property
    def effective(self) -> dict[str, str]:
        return {**self.static, **_dynamic(self.cluster), **_dynamic(self.broker)}


def explain_topic(
    overrides: Mapping[str, str], layers: BrokerLayers, names: Collection[str] | None = None
) -> list[Explained]:
    """Every topic setting (or those named), by name."""
    defaults = topic_defaults(layers.effective)
    entries = []
    for name, definition in sorted(TOPIC_SETTINGS.items()):
        override = overrides.get(name)
        if (names is not None and name not in names) or (definition.internal and override is None):
            continue
        synonyms = _chain(definition.synonyms[0][0], layers) if definition.synonyms else []
        if override is not None:
            synonyms.insert(0, Synonym(name, override, Source.TOPIC_CONFIG))
        value = definition.format(defaults.value_of(name)) if override is None else override
        entries.append(_entry(definition, value, synonyms, read_only=False))
    return entries


def explain_group(
    overrides: Mapping[str, str], layers: BrokerLayers, names: Collection[str] | None = None
) -> list[Explained]:
    """Every setting of a group (or those named), by name; the group need not exist."""
    effective = layers.effective
    entries = []
    for name, definition in sorted(GROUP_SETTINGS.items()):
        if names is not None and name not in names:
            continue
        synonyms = []
        value = definition.format(definition.default)
        if definition.synonyms:
            ((synonym, _),) = definition.synonyms
            synonyms = _chain(synonym, layers)
            value = effective.get(synonym, value)
        if name in overrides:
            value = overrides[name]
            synonyms.insert(0, Synonym(name, value, Source.GROUP_CONFIG))
        entries.append(_entry(definition, value, synonyms, read_only=False))
    return entries


def explain_client_metrics(overrides: Mapping[str, str], names: Collection[str] | None = None) -> list[Explained]:
    """Every setting of a subscription (or those named), by name; the subscription need not exist."""
    entries = []
    for name, definition in sorted(CLIENT_METRICS_SETTINGS.items()):
        if names is not None and name not in names:
            continue
        set_to = overrides.get(name)
        synonyms = [] if set_to is None else [Synonym(name, set_to, Source.CLIENT_METRICS_CONFIG)]
        value = definition.format(definition.default) if set_to is None else set_to
        entries.append(_entry(definition, value, synonyms, read_only=False))
    return entries


def explain_broker(layers: BrokerLayers, names: Collection[str] | None = None) -> list[Explained]:
    """Every setting of one broker (or those named)."""
    effective = layers.effective
    entries = []
    for name, definition in BROKER_SETTINGS.items():
        if (names is not None and name not in names) or definition.internal:
            continue
        value = effective.get(name, definition.format(definition.default))
        synonyms = _chain(name, layers)
        entries.append(_entry(definition, value, synonyms, read_only=definition.scope is Scope.READ_ONLY))
    for name in sorted({*layers.cluster, *layers.broker} - BROKER_SETTINGS.keys()):
        if names is None or name in names:
            of_listener = listener_tls_setting(name)
            if of_listener is not None:
                entries.append(_explain_listener(of_listener, layers))
                continue
            synonyms = [
                Synonym(name, values[name], source)
                for source, values in (
                    (Source.DYNAMIC_BROKER_CONFIG, layers.broker),
                    (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, layers.cluster),
                )
                if name in values
            ]
            entries.append(_unused(name, synonyms))
    return entries


def _explain_listener(definition: Setting, layers: BrokerLayers) -> Explained:
    """A TLS setting of one listener, which the setting without the listener's prefix stands in for."""
    name = definition.name
    synonyms = [
        Synonym(name, values[name], source)
        for source, values in (
            (Source.DYNAMIC_BROKER_CONFIG, layers.broker),
            (Source.STATIC_BROKER_CONFIG, layers.static),
        )
        if name in values
    ]
    general = general_tls_name(name)
    assert general is not None
    read_only = definition.scope is Scope.READ_ONLY
    return _entry(definition, layers.effective[name], [*synonyms, *_chain(general, layers)], read_only=read_only)


def explain_broker_defaults(cluster: Mapping[str, str], names: Collection[str] | None = None) -> list[Explained]:
    """The settings of all brokers."""
    entries = []
    for name, value in sorted(_dynamic(cluster).items()):
        if names is None or name in names:
            synonym = Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
            entries.append(_entry(BROKER_SETTINGS[name], value, [synonym], read_only=False))
    entries += [
        _unused(name, [Synonym(name, cluster[name], Source.DYNAMIC_DEFAULT_BROKER_CONFIG)])
        for name in sorted(cluster.keys() - BROKER_SETTINGS.keys())
        if names is None or name in names
    ]
    return entries


def _unused(name: str, synonyms: list[Synonym]) -> Explained:
    """A setting that is stored but not used."""
    definition = UNUSED_DYNAMIC.get(name) or unknown_setting(name)
    return _entry(definition, synonyms[0].value, synonyms, read_only=definition.type is Type.UNKNOWN)


def _dynamic(values: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in values.items()
        if (name in BROKER_SETTINGS and BROKER_SETTINGS[name].scope is not Scope.READ_ONLY) or is_of_listener_tls(name)
    }


def _chain(asked: str, layers: BrokerLayers) -> list[Synonym]:
    """Kafka's chain begins with the requested setting: a value set only in another unit has no synonyms."""
    names = _UNITS.get(asked, [asked])
    chain = []
    for source, values in (
        (Source.DYNAMIC_BROKER_CONFIG, _dynamic(layers.broker)),
        (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, _dynamic(layers.cluster)),
        (Source.STATIC_BROKER_CONFIG, layers.static),
    ):
        chain += [Synonym(name, values[name], source) for name in names if name in values]
    for name in names:
        default = BROKER_SETTINGS[name].format(BROKER_SETTINGS[name].default)
        if default is not None:
            chain.append(Synonym(name, default, Source.DEFAULT_CONFIG))
    return list(dropwhile(lambda synonym: synonym.name != asked, chain))


def _entry(definition: Setting, value: str | None, synonyms: list[Synonym], *, read_only: bool) -> Explained:
    if definition.sensitive:
        value = None
        synonyms = [synonym._replace(value=None) for synonym in synonyms]
    return Explained(
        name=definition.name,
        value=value,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=definition.sensitive,
        type=definition.type,
        documentation=definition.documentation,
        synonyms=tuple(synonyms),
    )


# Broker settings for the same value in different units, in descending order of precedence.
_UNITS: dict[str, list[str]] = {
    name: [synonym for synonym, _ in definition.synonyms]
    for definition in TOPIC_SETTINGS.values()
    if len(definition.synonyms) > 1
    for name, _ in definition.synonyms
}
