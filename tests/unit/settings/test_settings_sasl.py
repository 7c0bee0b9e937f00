"""Settings of SASL: JAAS text, prefixes of listeners and mechanisms, and what a node refuses to start with."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.explain import BrokerLayers, explain_broker
from penstock.settings.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from penstock.settings.node import NodeSettings
from penstock.settings.sasl import BearerLogin, Login, listener_sasl

PLAIN = f'{PLAIN_MODULE} required username="node" password="nodes secret" user_alice="a\\"b" user_node="nodes secret";'
SCRAM = f'{SCRAM_MODULE} required username="node" password="nodes secret";'
ALONE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "SASL_PLAINTEXT://:9092",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
}
IN_A_CLUSTER = {
    **ALONE,
    "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
}


def refusal(properties: dict[str, str], **changes: str) -> str:
    with pytest.raises(KafkaError) as caught:
        NodeSettings.from_properties({**properties, **changes})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "nodes secret" not in caught.value.message
    return caught.value.message


# -- JAAS -------------------------------------------------------------------------------------------------------------


def test_jaas_text() -> None:
    entry = parse_jaas("x", PLAIN)
    assert entry.module == PLAIN_MODULE
    assert entry.users == {"alice": 'a"b', "node": "nodes secret"}
    assert "secret" not in repr(entry)


def test_jaas_text_with_comments_lines_and_words() -> None:
    entry = parse_jaas("x", "a.B REQUIRED // why\n a=1 /* b */\n 'c d'='e;f'\n# no\n;")
    assert entry == ("a.B", {"a": "1", "c d": "e;f"})


@pytest.mark.parametrize(
    "text",
    ["", "a.B", "a.B required", "a.B required x;", "a.B needed;", 'a.B required x="1;', "a.B required x=1; c.D flag;"],
)
def test_malformed_jaas_text(text: str) -> None:
    with pytest.raises(KafkaError):
        parse_jaas("x", text)


# -- listeners --------------------------------------------------------------------------------------------------------


def test_a_node_alone_with_plain() -> None:
    settings = NodeSettings.from_properties(ALONE)
    assert settings.notices == ()
    sasl = listener_sasl(settings.properties, "SASL_PLAINTEXT")
    assert sasl.mechanisms == ("PLAIN",)
    assert sasl.jaas["PLAIN"].users["alice"] == 'a"b'


def test_prefixes_of_listeners_and_mechanisms() -> None:
    sasl = listener_sasl(
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "connections.max.reauth.ms": "10",
            "listener.name.clients.connections.max.reauth.ms": "20",
            "listener.name.clients.plain.connections.max.reauth.ms": "30",
            "listener.name.clients.sasl.oauthbearer.clock.skew.seconds": "5",
        },
        "CLIENTS",
    )
    assert sasl.mechanisms == ("SCRAM-SHA-256", "PLAIN")
    assert (sasl.max_reauth_ms["PLAIN"], sasl.max_reauth_ms["SCRAM-SHA-256"]) == (30, 20)
    assert sasl.settings.sasl_oauthbearer_clock_skew_seconds == 5


def test_logins_of_a_node() -> None:
    settings = NodeSettings.from_properties(IN_A_CLUSTER)
    assert settings.controller_login == Login("PLAIN", "node", "nodes secret", by_token=False)
    assert settings.inter_broker_login == settings.controller_login
    assert "secret" not in repr(settings.controller_login)


def test_brokers_may_use_scram_among_themselves() -> None:
    settings = NodeSettings.from_properties(
        {
            **IN_A_CLUSTER,
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM,
        }
    )
    assert settings.inter_broker_login == Login("SCRAM-SHA-512", "node", "nodes secret", by_token=False)


def test_controllers_cannot_use_scram() -> None:
    message = refusal(
        IN_A_CLUSTER,
        **{
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
            "listener.name.controller.scram-sha-512.sasl.jaas.config": SCRAM,
        },
    )
    assert "the users of SCRAM are in the metadata log" in message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI is not available"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": SCRAM}, "the login module of PLAIN is"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "http://x/jwks"},
            "is an https or file URL",
        ),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "https://x/jwks"},
            "needs sasl.oauthbearer.expected.audience",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://x/jwks",
                "sasl.oauthbearer.expected.audience": "kafka",
            },
            "needs sasl.oauthbearer.expected.issuer",
        ),
        ({"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "com.example.X"}, "there is no JVM"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, str], text: str) -> None:
    assert text in refusal(ALONE, **changes)


def test_plain_without_users_is_refused() -> None:
    properties = {name: value for name, value in ALONE.items() if "jaas" not in name}
    assert "PLAIN has no users" in refusal(properties)
    NodeSettings.from_properties({**properties, "penstock.sasl.plain.authenticator": "password-file"})


def test_a_login_that_other_nodes_would_refuse() -> None:
    message = refusal(IN_A_CLUSTER, **{"listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    assert "is not among the mechanisms of listener CONTROLLER" in message
    without = {name: value for name, value in IN_A_CLUSTER.items() if not name.startswith("listener.name.controller")}
    assert "needs the node's own login" in refusal(
        without, **{"listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    )


BEARER = {
    "sasl.mechanism.controller.protocol": "OAUTHBEARER",
    "listener.name.controller.sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://x/jwks",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "x",
}


def test_nodes_log_in_with_bearer_tokens() -> None:
    properties = {**IN_A_CLUSTER, **BEARER}
    assert "needs the node's own tokens" in refusal(properties)
    assert "an https or file URL, not 'http://x/token'" in refusal(
        properties, **{"sasl.oauthbearer.token.endpoint.url": "http://x/token"}
    )
    properties["sasl.oauthbearer.token.endpoint.url"] = "https://x/token"
    assert "needs the node's own login at https://x/token" in refusal(properties)
    by_settings = {
        "sasl.oauthbearer.client.credentials.client.id": "node",
        "sasl.oauthbearer.client.credentials.client.secret": "secret",
        "sasl.oauthbearer.scope": "kafka",
    }
    by_jaas = {
        "listener.name.controller.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="node" clientSecret="secret" scope="kafka";'
        )
    }
    for changes in (by_settings, by_jaas):
        login = NodeSettings.from_properties({**properties, **changes}).controller_login
        assert login == BearerLogin("https://x/token", "node", "secret", "kafka")
        assert "'secret'" not in repr(login)
    properties["sasl.oauthbearer.token.endpoint.url"] = "file:///run/token"
    settings = NodeSettings.from_properties(properties)
    assert settings.controller_login == BearerLogin("file:///run/token", "", "", "")
    assert "CONTROLLER" not in settings.own_principals  # only the token tells


def test_unsecured_tokens_are_announced() -> None:
    settings = NodeSettings.from_properties(
        {
            **ALONE,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "penstock.sasl.oauthbearer.allow.unsecured.tokens": "true",
        }
    )
    (warning,) = settings.notices
    assert "without a signature" in warning


def test_a_bare_jaas_configuration_is_ignored_and_said_so() -> None:
    settings = NodeSettings.from_properties({**ALONE, "sasl.jaas.config": PLAIN})
    assert settings.notices == (
        "sasl.jaas.config is ignored: it needs the prefix listener.name.<listener>.<mechanism>.",
    )


def test_no_secret_is_described() -> None:
    properties = {**IN_A_CLUSTER, "sasl.jaas.config": PLAIN, "delegation.token.secret.key": "tokens secret"}
    settings = NodeSettings.from_properties(properties)
    described = explain_broker(BrokerLayers(settings.properties, {}, {}))
    assert "secret" not in str([(entry.value, entry.synonyms) for entry in described if "secret" not in entry.name])
    values = {entry.name: entry.value for entry in described}
    assert values["delegation.token.secret.key"] is None
