"""The settings of a node, from a Kafka-style `server.properties`.

`NodeSettings.from_properties` reads the static file; `with_dynamic` applies the dynamic settings from the cluster's
metadata (first the default for all brokers, then those of this broker). Both are frozen: a changed setting is a new
value, which is passed to the components that need it.

A property that only Kafka uses, or an unknown one, does not stop the node: such files are shared with other software.
It causes a line in `notices`, which the node logs at start. A property that would leave the cluster less safe than its
operator believes (an authorizer, TLS, SASL, quotas, tiered storage) is refused instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.settings.definition import Scope, Setting, Type, at_least, attribute_of, nearest, settings_of
from penstock.settings.groups import GroupSettings
from penstock.settings.known import known_to_kafka, missing_protection
from penstock.settings.listeners import refusal
from penstock.settings.logs import LogSettings, check_cordoned
from penstock.settings.network import NetworkSettings
from penstock.settings.observability import ObservabilitySettings
from penstock.settings.properties import parse_properties
from penstock.settings.quorum import QuorumSettings
from penstock.settings.replication import ReplicationSettings
from penstock.settings.tls import TlsSettings, is_of_listener_tls
from penstock.settings.topic import TOPIC_SETTINGS, TopicSettings
from penstock.settings.transactions import TransactionSettings

__all__ = ["BROKER_SETTINGS", "NodeSettings", "parse_properties", "topic_defaults"]


@dataclass(frozen=True, kw_only=True)
class NodeSettings(
    NetworkSettings,
    LogSettings,
    QuorumSettings,
    ReplicationSettings,
    GroupSettings,
    TransactionSettings,
    TlsSettings,
    ObservabilitySettings,
):
    """All settings of a node; a component takes the base class with the settings it needs."""

    # The defaults of topic settings: log.* and similar settings.
    topic_defaults: TopicSettings = dataclasses.field(default_factory=TopicSettings)
    # The properties as given, for DescribeConfigs and as the base of dynamic settings.
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Notices about the properties for the node's operator.
    notices: tuple[str, ...] = ()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> NodeSettings:
        """KafkaError(INVALID_CONFIG) for an invalid value, or for settings that contradict each other."""
        properties = dict(properties)
        settings = _build(properties, properties, _notices(properties))
        check_node(settings)
        return settings

    def with_dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> NodeSettings:
        """This node's settings under the dynamic ones of all brokers and of this broker."""
        dynamic = {
            name: text
            for layer in (cluster, broker)
            for name, text in layer.items()
            if name in BROKER_SETTINGS and BROKER_SETTINGS[name].scope is not Scope.READ_ONLY
        }
        return _build({**self.properties, **dynamic}, self.properties, self.notices)

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole cluster: there is no way for others to reach its quorum."""
        return self.is_controller and not self.controller_listener_names

    @property
    def metadata_directory(self) -> str:
        """The directory that contains `__cluster_metadata-0`."""
        return self.metadata_log_dir or self.log_directories[0]


def topic_defaults(properties: Mapping[str, str]) -> TopicSettings:
    """The defaults of topic settings from broker properties: for each, the first synonym that is set."""
    values: dict[str, Any] = {}
    for topic_name, definition in TOPIC_SETTINGS.items():
        for synonym, factor in definition.synonyms:
            if synonym in properties:
                value = BROKER_SETTINGS[synonym].parse(properties[synonym])
                values[attribute_of(topic_name)] = value * factor if factor != 1 else value
                break
    settings = dataclasses.replace(TopicSettings(), **values)
    if settings.retention_ms < 0:
        settings = dataclasses.replace(settings, retention_ms=-1)
    if settings.retention_ms == 0:
        raise refusal("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    if settings.segment_ms < 1:
        raise refusal("log.roll.ms must be greater than or equal to 1")
    if settings.segment_jitter_ms < 0:
        raise refusal("log.roll.jitter.ms must be greater than or equal to 0")
    return settings.checked()


def _build(properties: Mapping[str, str], static: Mapping[str, str], notices: tuple[str, ...]) -> NodeSettings:
    values = {}
    for name, definition in _DECLARED.items():
        text = properties.get(name)
        if text is not None:
            values[attribute_of(name)] = definition.parse(text)
        elif definition.required:
            raise refusal(f'Missing required configuration "{name}" which has no default value.')
    return NodeSettings(**values, topic_defaults=topic_defaults(properties), properties=static, notices=notices)


def _notices(properties: Mapping[str, str]) -> tuple[str, ...]:
    notices = []
    for name in properties:
        if name in BROKER_SETTINGS or name == "broker.id" or is_of_listener_tls(name):
            continue
        if known_to_kafka(name):
            notices.append(f"{name} is a setting of Kafka's that is not used here")
        else:
            notices.append(f"unknown setting {name}{nearest(name, BROKER_SETTINGS)}")
    return tuple(notices)


def check_node(settings: NodeSettings) -> None:
    """Check the rules that span several settings."""
    properties = settings.properties
    if properties.get("broker.id", str(settings.node_id)) not in (str(settings.node_id), "-1"):
        raise refusal("`node.id` and `broker.id` must be set to the same value")
    for name, value in properties.items():
        asked = missing_protection(name, value)
        if asked is not None:
            raise refusal(f"{name} asks for {asked}, which is not available: remove the setting to run without")
    for endpoint in settings.endpoints:
        if endpoint.security_protocol not in ("PLAINTEXT", "SSL"):
            raise refusal(
                f"listener {endpoint} wants {endpoint.security_protocol}; only PLAINTEXT and SSL are served so far"
            )
    if not settings.log_directories:
        raise refusal("At least one log directory must be defined via log.dirs or log.dir.")
    if settings.is_broker:
        check_cordoned(settings.cordoned_log_dirs, settings.log_directories)
    if 0 < settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        raise refusal("queued.max.request.bytes must be larger or equal to socket.request.max.bytes")
    if settings.max_connections_per_ip == 0 and not settings.connection_overrides:
        raise refusal("max.connections.per.ip can be zero only if max.connections.per.ip.overrides is set")
    _check_listeners(settings)
    _check_quorum(settings)
    check_groups(settings)


def _check_listeners(settings: NodeSettings) -> None:
    names = [endpoint.name for endpoint in settings.endpoints]
    if not settings.is_broker:
        if settings.broker_endpoints:
            raise refusal(
                "listeners must only contain controller listeners from controller.listener.names "
                "when process.roles=controller"
            )
        return
    if not settings.is_controller and settings.controller_endpoints:
        raise refusal("listeners must not contain a controller listener when process.roles=broker")
    advertised = [endpoint.name for endpoint in settings.advertised_endpoints]
    if not advertised:
        raise refusal(
            "There must be at least one broker advertised listener. "
            "Perhaps all listeners appear in controller.listener.names?"
        )
    for name in advertised:
        if name not in names:
            raise refusal(f"advertised.listeners: {name} is not in listeners ({', '.join(names)})")
    if settings.inter_broker_listener not in advertised:
        raise refusal(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(advertised)}"
        )
    if settings.advertised_listeners and any(endpoint.host == "0.0.0.0" for endpoint in settings.advertised_endpoints):
        raise refusal(
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )


def _check_quorum(settings: NodeSettings) -> None:
    voters = {voter.node_id for voter in settings.quorum_voters}
    bootstrap = settings.quorum_bootstrap_servers
    if settings.is_controller:
        if voters and settings.node_id not in voters:
            raise refusal(
                f"If process.roles contains the 'controller' role, the node id {settings.node_id} "
                f"must be included in controller.quorum.voters"
            )
        named = {name.upper() for name in settings.controller_listener_names}
        missing = named - {endpoint.name for endpoint in settings.controller_endpoints}
        if missing:
            raise refusal(f"controller.listener.names: {', '.join(sorted(missing))} is not in listeners")
        alone = settings.is_broker and len(voters) <= 1
        if not named and not alone:
            raise refusal("controller.listener.names must name a listener: this node has others to talk to")
    else:
        if settings.node_id in voters:
            raise refusal(
                f"If process.roles contains just the 'broker' role, the node id {settings.node_id} "
                f"must not be included in controller.quorum.voters"
            )
        if not voters and not bootstrap:
            raise refusal(
                "A broker needs controller.quorum.bootstrap.servers or controller.quorum.voters to find the quorum"
            )
        if not settings.controller_listener_names:
            raise refusal("controller.listener.names must contain at least one value when process.roles=broker")


def check_groups(settings: NodeSettings) -> None:
    if "classic" not in settings.group_coordinator_rebalance_protocols:
        raise refusal("Disabling the 'classic' protocol is not supported.")
    for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        low, value, high = (
            getattr(settings, attribute_of(f"group.consumer.{bound}{what}")) for bound in ("min.", "", "max.")
        )
        if high < low:
            raise refusal(f"group.consumer.max.{what} must be greater than or equal to group.consumer.min.{what}")
        if value < low:
            raise refusal(f"group.consumer.{what} must be greater than or equal to group.consumer.min.{what}")
        if value > high:
            raise refusal(f"group.consumer.{what} must be less than or equal to group.consumer.max.{what}")
    if settings.group_consumer_heartbeat_interval_ms >= settings.group_consumer_session_timeout_ms:
        raise refusal("group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms")


def _broker_synonyms() -> dict[str, Setting]:
    """The broker settings that are defaults of topic settings."""
    found = {}
    for definition in TOPIC_SETTINGS.values():
        several = len(definition.synonyms) > 1
        for position, (name, factor) in enumerate(definition.synonyms):
            if name in _DECLARED:
                continue
            if position == 0:
                # If a coarser unit exists, it carries the default, and this setting is unset by default.
                default = None if several else definition.default
                found[name] = dataclasses.replace(
                    definition,
                    name=name,
                    default=default,
                    validator=None if several else definition.validator,
                    scope=Scope.CLUSTER_WIDE,
                    synonyms=(),
                )
            else:
                coarsest = position == len(definition.synonyms) - 1
                validator = at_least(1 if definition.name == "segment.ms" else 0)
                found[name] = Setting(
                    name,
                    Type.INT,
                    definition.default // factor if coarsest else None,
                    f"{definition.documentation} (The default of {definition.name}, in another unit.)",
                    None if definition.name == "retention.ms" else validator,
                )
    return found


_DECLARED: Final[dict[str, Setting]] = settings_of(NodeSettings)
_SYNONYMS: Final[dict[str, Setting]] = _broker_synonyms()

# Every broker setting by its Kafka name.
BROKER_SETTINGS: Final[dict[str, Setting]] = dict(sorted({**_DECLARED, **_SYNONYMS}.items()))
