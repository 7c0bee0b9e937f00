"""Settings of SASL, for all listeners or (with `listener.name.<listener>.` before them) for one.

`sasl.jaas.config` and `connections.max.reauth.ms` also exist for one mechanism of a listener:
`listener.name.<listener>.<mechanism>.sasl.jaas.config`, in lower case. As in Kafka, the JAAS configuration of a
listener must have that form. It contains the users of PLAIN and, as `username` and `password`, the node's own login to
other nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.settings.definition import (
    Setting,
    Type,
    at_least,
    attribute_of,
    boolean,
    distinct,
    integer,
    long,
    setting,
    settings_of,
    string,
    strings,
)
from penstock.settings.jaas import MODULE_OF, JaasEntry, parse_jaas
from penstock.settings.listeners import refusal

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
JAAS_CONFIG: Final = "sasl.jaas.config"
MAX_REAUTH_MS: Final = "connections.max.reauth.ms"
CALLBACK_HANDLER: Final = "sasl.server.callback.handler.class"
AUTHENTICATOR: Final = "penstock.sasl.plain.authenticator"
AUTHENTICATOR_OPTIONS: Final = "penstock.authenticator."
# The Java class by which Kafka asks for what we do for OAUTHBEARER anyway.
_VALIDATORS: Final = frozenset(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    }
)
_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.(?:(?:plain|scram-sha-256|scram-sha-512|oauthbearer)\.)?(.+)")


@dataclass(frozen=True, kw_only=True)
class SaslSettings:
    sasl_enabled_mechanisms: tuple[str, ...] = strings(
        ("GSSAPI",),
        "The SASL mechanisms of listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. The default is "
        "Kafka's, and Penstock does not have it: a listener with SASL needs this setting.",
        distinct(empty=False),
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "GSSAPI",
        "The SASL mechanism with which brokers log in to each other.",
    )
    sasl_mechanism_controller_protocol: str = string(
        "GSSAPI",
        "The SASL mechanism with which nodes log in to controllers. It cannot be SCRAM, whose users are in the "
        "metadata log that a node can read only after its login.",
    )
    sasl_jaas_config: str | None = setting(
        Type.PASSWORD,
        None,
        "The users and the node's own login, as JAAS text. It must have the prefix of a listener and a mechanism: "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        Type.CLASS,
        None,
        "Kafka's class for checking credentials in Java. Only Kafka's validator for OAUTHBEARER is understood; see "
        "penstock.sasl.plain.authenticator for plug-ins.",
    )
    sasl_server_max_receive_size: int = integer(
        524_288,
        "The maximum size of a request or token before authentication. A larger one closes the connection.",
        at_least(0),
    )
    connections_max_reauth_ms: int = long(
        0,
        "How long an authenticated session may last before its client has to authenticate again; 0 for no limit.",
    )
    connection_failed_authentication_delay_ms: int = integer(
        100,
        "How long a failed authentication waits for its answer and the close after it.",
        at_least(0),
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(
        None,
        "The keys of the tokens' issuer: the https or file URL of a JWKS document.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000,
        "How long the keys are used before they are read again.",
        at_least(1),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100,
        "The pause after a failed attempt to read the keys; it doubles each time.",
        at_least(1),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000,
        "The longest pause between attempts to read the keys.",
        at_least(1),
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = strings(
        (),
        "The audiences (aud) of which a token must name one.",
        distinct(),
    )
    sasl_oauthbearer_expected_issuer: str = string(
        "",
        "The issuer (iss) that a token must name.",
    )
    sasl_oauthbearer_allow_unverified_audience: bool = boolean(
        False,
        "Allows a start without sasl.oauthbearer.expected.audience.",
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = boolean(
        False,
        "Allows a start without sasl.oauthbearer.expected.issuer.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30,
        "By how much the clock of a token's issuer may differ.",
        at_least(0),
    )
    sasl_oauthbearer_sub_claim_name: str = string(
        "sub",
        "The claim of a token that names the principal.",
    )
    sasl_oauthbearer_scope_claim_name: str = string(
        "scope",
        "The claim of a token that lists its scope.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = string(
        None,
        "Where this node gets the bearer tokens for its own logins to other nodes: the https URL of an issuer, which "
        "it asks with its client id and secret, or the file URL of a file that contains a token.",
    )
    sasl_oauthbearer_client_credentials_client_id: str = string(
        "",
        "The client id of this node at the issuer of its bearer tokens; also clientId in the JAAS configuration.",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        Type.PASSWORD,
        None,
        "The client secret of this node at the issuer of its bearer tokens; also clientSecret in the JAAS "
        "configuration.",
    )
    sasl_oauthbearer_scope: str = string(
        "",
        "The scope that this node asks the issuer of its bearer tokens for; also scope in the JAAS configuration.",
    )
    penstock_sasl_oauthbearer_allow_unsecured_tokens: bool = boolean(
        False,
        "Accepts tokens without a signature where no JWKS is configured, for tests of clients: anybody can make such a "
        "token for any user. Kafka does this by default. An addition to Kafka's settings.",
    )
    penstock_sasl_plain_authenticator: str = string(
        "",
        "The plug-in that checks the passwords of PLAIN: the name of an entry point in the group "
        "penstock.authenticators, such as password-file. Its options are the settings "
        "penstock.authenticator.<name>.<option>. Empty: the users of the JAAS configuration. An addition to Kafka's "
        "settings.",
    )
    delegation_token_secret_key: str | None = setting(
        Type.PASSWORD,
        None,
        "The secret from which delegation tokens are made, the same on every node. Without it there are none.",
    )
    delegation_token_max_lifetime_ms: int = long(
        604_800_000,
        "The longest life of a delegation token, however often it is renewed.",
        at_least(1),
    )
    delegation_token_expiry_time_ms: int = long(
        86_400_000,
        "How long a delegation token is valid before it has to be renewed.",
        at_least(1),
    )
    delegation_token_expiry_check_interval_ms: int = long(
        3_600_000,
        "How often the controller removes expired delegation tokens.",
        at_least(1),
    )


class Login(NamedTuple):
    """A node's own login to other nodes."""

    mechanism: str
    user: str
    password: str
    by_token: bool

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user!r}, password hidden)"


class BearerLogin(NamedTuple):
    """A node's own login to other nodes with bearer tokens. `url` names a file, or the issuer."""

    url: str
    client_id: str
    client_secret: str
    scope: str

    @property
    def mechanism(self) -> str:
        return "OAUTHBEARER"

    def __repr__(self) -> str:
        return f"BearerLogin({self.url!r}, {self.client_id!r}, secret hidden)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSasl:
    """The SASL settings of one listener."""

    listener: str
    settings: SaslSettings
    jaas: Mapping[str, JaasEntry]
    max_reauth_ms: Mapping[str, int]
    authenticator_options: Mapping[str, str]

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self.settings.sasl_enabled_mechanisms

    def jaas_name(self, mechanism: str) -> str:
        return f"listener.name.{self.listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"


def listener_sasl(properties: Mapping[str, str], listener: str) -> ListenerSasl:
    """Read the settings of a listener. KafkaError(INVALID_CONFIG) if they are malformed."""
    prefix = f"listener.name.{listener.lower()}."
    values: dict[str, Any] = {}
    for name, definition in _DECLARED.items():
        text = properties.get(prefix + name, properties.get(name))
        if text is not None and name != JAAS_CONFIG:
            values[attribute_of(name)] = definition.parse(text)
    settings = SaslSettings(**values)
    _check_handler(CALLBACK_HANDLER, settings.sasl_server_callback_handler_class, "OAUTHBEARER")
    jaas: dict[str, JaasEntry] = {}
    max_reauth: dict[str, int] = {}
    for mechanism in MECHANISMS:
        own = f"{prefix}{mechanism.lower()}."
        if own + JAAS_CONFIG in properties:
            entry = parse_jaas(own + JAAS_CONFIG, properties[own + JAAS_CONFIG])
            if entry.module != MODULE_OF[mechanism]:
                raise refusal(f"{own + JAAS_CONFIG}: the login module of {mechanism} is {MODULE_OF[mechanism]}")
            jaas[mechanism] = entry
        text = properties.get(own + MAX_REAUTH_MS)
        limit = _DECLARED[MAX_REAUTH_MS].parse(text) if text is not None else settings.connections_max_reauth_ms
        max_reauth[mechanism] = limit
        _check_handler(own + CALLBACK_HANDLER, properties.get(own + CALLBACK_HANDLER), mechanism)
    options = f"{AUTHENTICATOR_OPTIONS}{settings.penstock_sasl_plain_authenticator}."
    return ListenerSasl(
        listener=listener,
        settings=settings,
        jaas=jaas,
        max_reauth_ms=max_reauth,
        authenticator_options={
            name[len(options) :]: value for name, value in properties.items() if name.startswith(options)
        },
    )


def _check_handler(name: str, handler: str | None, mechanism: str) -> None:
    if handler and not (mechanism == "OAUTHBEARER" and handler in _VALIDATORS):
        raise refusal(f"{name} names a Java class, and there is no JVM: see {AUTHENTICATOR}")


def node_login(properties: Mapping[str, str], listener: str, setting_name: str, mechanism: str) -> Login | BearerLogin:
    """How this node logs in at the listener of another. `setting_name` names the mechanism, for messages."""
    if mechanism not in MECHANISMS:
        raise refusal(f"{setting_name}={mechanism} is not available; it is one of {', '.join(MECHANISMS)}")
    sasl = listener_sasl(properties, listener)
    if mechanism == "OAUTHBEARER":
        return _bearer_login(sasl, setting_name)
    entry = sasl.jaas.get(mechanism)
    if entry is None or not entry.options.get("username") or "password" not in entry.options:
        raise refusal(
            f"{setting_name}={mechanism} needs the node's own login: `username` and `password` in "
            f"{sasl.jaas_name(mechanism)}"
        )
    by_token = entry.options.get("tokenauth", "").lower() == "true"
    return Login(mechanism, entry.options["username"], entry.options["password"], by_token)


def _bearer_login(sasl: ListenerSasl, setting_name: str) -> BearerLogin:
    settings = sasl.settings
    url = settings.sasl_oauthbearer_token_endpoint_url or ""
    if not url.startswith(("https://", "file:")):
        raise refusal(
            f"{setting_name}=OAUTHBEARER needs the node's own tokens: set sasl.oauthbearer.token.endpoint.url, an "
            f"https or file URL{f', not {url!r}' if url else ''}"
        )
    options = sasl.jaas["OAUTHBEARER"].options if "OAUTHBEARER" in sasl.jaas else {}
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret", "")
    if url.startswith("https:") and not (client_id and secret):
        raise refusal(
            f"{setting_name}=OAUTHBEARER needs the node's own login at {url}: set "
            "sasl.oauthbearer.client.credentials.client.id and .client.secret, or clientId and clientSecret in "
            f"{sasl.jaas_name('OAUTHBEARER')}"
        )
    return BearerLogin(url, client_id, secret, settings.sasl_oauthbearer_scope or options.get("scope", ""))


def is_sasl_setting(name: str) -> bool:
    """Whether the setting, possibly with the prefix of a listener and a mechanism, is one of these."""
    match = _PREFIX.fullmatch(name)
    return (match[1] if match else name) in _DECLARED or name.startswith(AUTHENTICATOR_OPTIONS)


def check_listener(sasl: ListenerSasl) -> None:
    """Check that the mechanisms of a listener can work."""
    settings, listener = sasl.settings, sasl.listener
    for mechanism in sasl.mechanisms:
        if mechanism not in MECHANISMS:
            raise refusal(
                f"listener {listener}: the SASL mechanism {mechanism} is not available; sasl.enabled.mechanisms lists "
                f"some of {', '.join(MECHANISMS)}"
            )
    if "PLAIN" in sasl.mechanisms and "PLAIN" not in sasl.jaas and not settings.penstock_sasl_plain_authenticator:
        raise refusal(
            f"listener {listener}: PLAIN has no users: set {sasl.jaas_name('PLAIN')}, or {AUTHENTICATOR} for a plug-in"
        )
    if "OAUTHBEARER" in sasl.mechanisms:
        _check_oauthbearer(sasl)


def _check_oauthbearer(sasl: ListenerSasl) -> None:
    settings, listener = sasl.settings, sasl.listener
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        if not settings.penstock_sasl_oauthbearer_allow_unsecured_tokens:
            raise refusal(
                f"listener {listener}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url. (Kafka would accept "
                "tokens without a signature, from anybody, for any user; for tests of clients set "
                "penstock.sasl.oauthbearer.allow.unsecured.tokens=true.)"
            )
        return
    if not url.startswith(("https://", "file:")):
        raise refusal(f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url is an https or file URL, not {url!r}")
    for what, is_set, is_waived in (
        ("audience", settings.sasl_oauthbearer_expected_audience, settings.sasl_oauthbearer_allow_unverified_audience),
        ("issuer", settings.sasl_oauthbearer_expected_issuer, settings.sasl_oauthbearer_allow_unverified_issuer),
    ):
        if not is_set and not is_waived:
            raise refusal(
                f"listener {listener}: OAUTHBEARER needs sasl.oauthbearer.expected.{what}, or "
                f"sasl.oauthbearer.allow.unverified.{what}=true to accept any"
            )


def warnings_of(sasl: ListenerSasl) -> list[str]:
    settings = sasl.settings
    if (
        "OAUTHBEARER" in sasl.mechanisms
        and not settings.sasl_oauthbearer_jwks_endpoint_url
        and settings.penstock_sasl_oauthbearer_allow_unsecured_tokens
    ):
        return [
            f"listener {sasl.listener} accepts OAUTHBEARER tokens without a signature: anybody who reaches it can be "
            "any user (penstock.sasl.oauthbearer.allow.unsecured.tokens)"
        ]
    return []


_DECLARED: Final[dict[str, Setting]] = settings_of(SaslSettings)
