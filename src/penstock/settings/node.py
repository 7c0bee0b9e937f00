"""The settings of a node, from a Kafka-style `server.properties`.

`NodeSettings.from_properties` reads the static file; `with_dynamic` applies the dynamic settings from the cluster's
metadata (first the default for all brokers, then those of this broker). Both are frozen: a changed setting is a new
value, which is passed to the components that need it.

A property that only Kafka uses, or an unknown one, does not stop the node: such files are shared with other software.
It causes a line in `notices`, which the node logs at start. A property that would leave the cluster less safe than its
operator believes (another authorizer, a policy in Java, tiered storage) is refused instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from penstock.settings.acls import AclSettings, check_acls
from penstock.settings.definition import Scope, Setting, Type, at_least, attribute_of, nearest, settings_of
from penstock.settings.groups import GroupSettings
from penstock.settings.known import known_to_kafka, missing_protection
from penstock.settings.listeners import refusal
from penstock.settings.logs import LogSettings, check_cordoned
from penstock.settings.network import NetworkSettings
from penstock.settings.observability import ObservabilitySettings
from penstock.settings.properties import parse_properties
from penstock.settings.providers import ProviderSettings, is_of_provider, unknown_references
from penstock.settings.quorum import QuorumSettings
from penstock.settings.quotas import QuotaSettings
from penstock.settings.replication import ReplicationSettings
from penstock.settings.sasl import (
    SASL_PROTOCOLS,
    BearerLogin,
    Login,
    SaslSettings,
    check_listener,
    is_sasl_setting,
    listener_sasl,
    node_login,
    warnings_of,
)
from penstock.settings.schema_validation import SchemaValidationSettings
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
    AclSettings,
    SaslSettings,
    QuotaSettings,
    TlsSettings,
    ObservabilitySettings,
    ProviderSettings,
    SchemaValidationSettings,
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
        warnings = (*_check_sasl(settings), *settings.check_metrics())
        return dataclasses.replace(settings, notices=(*settings.notices, *warnings)) if warnings else settings

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

    @cached_property
    def own_principals(self) -> Mapping[str, str]:
        """The principals that this node has, as a client of other nodes, by listener; without those that only the
        other node's answer would show."""
        if self.is_alone:
            return {}
        logins = {self.quorum_listener: self.controller_login}
        if self.is_broker:
            logins[self.inter_broker_listener] = self.inter_broker_login
        found = {}
        for listener, login in logins.items():
            if isinstance(login, Login) and not login.by_token:
                found[listener] = f"User:{login.user}"
            elif self.protocol_map.get(listener) == "PLAINTEXT":
                found[listener] = "User:ANONYMOUS"
        return found

    @property
    def inter_broker_login(self) -> Login | BearerLogin | None:
        """How this node logs in to brokers; None if it need not."""
        name = "sasl.mechanism.inter.broker.protocol"
        mechanism = self.sasl_mechanism_inter_broker_protocol
        return self._login(self.inter_broker_listener, name, mechanism)

    @property
    def controller_login(self) -> Login | BearerLogin | None:
        """How this node logs in to controllers; None if it need not."""
        name = "sasl.mechanism.controller.protocol"
        return self._login(self.quorum_listener, name, self.sasl_mechanism_controller_protocol)

    def _login(self, listener: str, name: str, mechanism: str) -> Login | BearerLogin | None:
        if self.protocol_map.get(listener) not in SASL_PROTOCOLS:
            return None
        return node_login(self.properties, listener, name, mechanism)

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
        if name == "sasl.jaas.config":
            notices.append("sasl.jaas.config is ignored: it needs the prefix listener.name.<listener>.<mechanism>.")
        if name in BROKER_SETTINGS or name == "broker.id" or is_sasl_setting(name) or is_of_listener_tls(name):
            continue
        if is_of_provider(name):
            continue
        if known_to_kafka(name):
            notices.append(f"{name} is a setting of Kafka's that is not used here")
        else:
            notices.append(f"unknown setting {name}{nearest(name, BROKER_SETTINGS)}")
    return (*notices, *unknown_references(properties))


def check_node(settings: NodeSettings) -> None:
    """Check the rules that span several settings."""
    properties = settings.properties
    if properties.get("broker.id", str(settings.node_id)) not in (str(settings.node_id), "-1"):
        raise refusal("`node.id` and `broker.id` must be set to the same value")
    for name, value in properties.items():
        asked = missing_protection(name, value)
        if asked is not None:
            raise refusal(f"{name} asks for {asked}, which is not available: remove the setting to run without")
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
    _check_acls(settings)
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


def _check_sasl(settings: NodeSettings) -> list[str]:
    """Check the listeners with SASL and this node's own logins. Returns warnings."""
    warnings: list[str] = []
    for endpoint in settings.endpoints:
        if endpoint.security_protocol in SASL_PROTOCOLS:
            sasl = listener_sasl(settings.properties, endpoint.name)
            check_listener(sasl)
            warnings += warnings_of(sasl)
    if not settings.is_alone:
        _check_login(
            settings, settings.controller_login, settings.quorum_listener, "sasl.mechanism.controller.protocol"
        )
        if settings.controller_login is not None and settings.controller_login.mechanism.startswith("SCRAM"):
            raise refusal(
                f"sasl.mechanism.controller.protocol={settings.controller_login.mechanism} cannot work: the users of "
                "SCRAM are in the metadata log, and a node can read that only after its login. Use PLAIN (or TLS "
                "certificates) for the controller listener; brokers and clients may use SCRAM among themselves"
            )
    if settings.is_broker and not settings.is_alone:
        name = "sasl.mechanism.inter.broker.protocol"
        _check_login(settings, settings.inter_broker_login, settings.inter_broker_listener, name)
    return warnings


def _check_login(settings: NodeSettings, login: Login | BearerLogin | None, listener: str, name: str) -> None:
    """The other nodes have the same settings, as far as this one can know."""
    if login is None or listener not in {endpoint.name for endpoint in settings.endpoints}:
        return
    mechanisms = listener_sasl(settings.properties, listener).mechanisms
    if login.mechanism not in mechanisms:
        raise refusal(f"{name}={login.mechanism} is not among the mechanisms of listener {listener}: {mechanisms}")


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


def _check_acls(settings: NodeSettings) -> None:
    listeners = {endpoint.name for endpoint in settings.endpoints}
    listeners |= {name.upper() for name in settings.controller_listener_names}
    own = {}
    if settings.has_acls and settings.is_controller and settings.quorum_listener in settings.own_principals:
        own[settings.quorum_listener] = settings.own_principals[settings.quorum_listener]
    check_acls(settings, settings.properties, listeners, own)


def check_groups(settings: NodeSettings) -> None:
    if "classic" not in settings.group_coordinator_rebalance_protocols:
        raise refusal("Disabling the 'classic' protocol is not supported.")
    for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        _check_bounds(settings, "group.consumer.", what)
        _check_bounds(settings, "group.share.", what)
    for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
        _check_bounds(settings, "group.share.", what)
    if settings.group_consumer_heartbeat_interval_ms >= settings.group_consumer_session_timeout_ms:
        raise refusal("group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms")
    if settings.group_share_heartbeat_interval_ms >= settings.group_share_session_timeout_ms:
        raise refusal("group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms")


def _check_bounds(settings: NodeSettings, prefix: str, what: str) -> None:
    low, value, high = (getattr(settings, attribute_of(f"{prefix}{bound}{what}")) for bound in ("min.", "", "max."))
    if high < low:
        raise refusal(f"{prefix}max.{what} must be greater than or equal to {prefix}min.{what}")
    if value < low:
        raise refusal(f"{prefix}{what} must be greater than or equal to {prefix}min.{what}")
    if value > high:
        raise refusal(f"{prefix}{what} must be less than or equal to {prefix}max.{what}")


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
