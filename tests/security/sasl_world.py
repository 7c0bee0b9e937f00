"""Settings of nodes and clients with SASL, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

HAS_OAUTH = find_spec("joserfc") is not None
ADMIN_PASSWORD = "admins password"
NODE_PASSWORD = "nodes password"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

USERS = (
    f'{PLAIN_MODULE} required username="node" password="{NODE_PASSWORD}" '
    f'user_node="{NODE_PASSWORD}" user_admin="{ADMIN_PASSWORD}";'
)
# The listener keeps the name that the tools for tests give it.
NODE: Mapping[str, str] = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": f"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512{',OAUTHBEARER' if HAS_OAUTH else ''}",
    "listener.name.plaintext.plain.sasl.jaas.config": USERS,
    "listener.name.controller.plain.sasl.jaas.config": USERS,
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "penstock.sasl.oauthbearer.allow.unsecured.tokens": "true",
    "delegation.token.secret.key": "tokens secret",
}


def options(mechanism: str = "PLAIN", user: str = "admin", password: str = ADMIN_PASSWORD) -> dict[str, str]:
    """Of our clients, and of librdkafka's."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
