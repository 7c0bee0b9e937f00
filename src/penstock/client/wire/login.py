"""How our clients encrypt their connections and log in, from options by Kafka's names.

    security.protocol=SASL_SSL
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/penstock/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.username=alice
    sasl.password=...

`sasl.jaas.config` is understood, too, as in files for Kafka's tools, also with `tokenauth="true"` for a delegation
token. OAUTHBEARER takes its token from the file that `sasl.oauthbearer.token.endpoint.url` names (a file URL); the file
is read for each connection, so that a renewed token is used. A program that has a token in memory gives it as
`sasl.oauthbearer.access.token`.

What a mechanism or TLS needs is imported when the options ask for it: a client of a plain listener starts without it.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.client.errors import ClientError
from penstock.model.errors import KafkaError
from penstock.protocol.conversation import Login
from penstock.settings.listeners import SECURITY_PROTOCOLS, TLS_PROTOCOLS

if TYPE_CHECKING:
    import ssl

    from penstock.security.sasl.logins import OAuthBearerLogin

TOKEN_BYTES_MAX: Final = 1 << 20
ACCESS_TOKEN: Final = "sasl.oauthbearer.access.token"


def tls_from(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """None if the protocol has no TLS. ClientError if the options do not make a context."""
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ClientError(f"security.protocol={protocol} is not one of {', '.join(SECURITY_PROTOCOLS)}")
    if protocol not in TLS_PROTOCOLS:
        return None
    from penstock.settings.definition import attribute_of
    from penstock.settings.tls import TLS_SETTINGS, TlsSettings
    from penstock.tls import open_client_context

    try:
        values = {
            attribute_of(name): TLS_SETTINGS[name].parse(options[name]) for name in TLS_SETTINGS if name in options
        }
        return open_client_context(TlsSettings(**values))
    except KafkaError as error:
        raise ClientError(error.message) from error


def login_from(options: Mapping[str, str]) -> Login | None:
    """None if the protocol has no SASL. ClientError if the options do not make a login."""
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if not protocol.startswith("SASL_"):
        return None
    from penstock.security.sasl.logins import password_login
    from penstock.settings.sasl import MECHANISMS

    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms") or ""
    if mechanism not in MECHANISMS:
        raise ClientError(f"security.protocol={protocol} needs sasl.mechanism, one of {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        return _bearer_login(options)
    user, password, by_token = password_of(options, mechanism)
    return password_login(mechanism, user, password, _nonce, by_token=by_token)


def password_of(options: Mapping[str, str], mechanism: str) -> tuple[str, str, bool]:
    """User, password, and whether they are those of a delegation token."""
    text = options.get("sasl.jaas.config")
    if text is None:
        user, password = options.get("sasl.username"), options.get("sasl.password")
        if not user or password is None:
            raise ClientError(f"sasl.mechanism={mechanism} needs sasl.username and sasl.password, or sasl.jaas.config")
        return user, password, False
    from penstock.settings.jaas import MODULE_OF, parse_jaas

    try:
        entry = parse_jaas("sasl.jaas.config", text)
    except KafkaError as error:
        raise ClientError(error.message) from error
    if entry.module != MODULE_OF[mechanism]:
        raise ClientError(f"sasl.jaas.config: the login module of {mechanism} is {MODULE_OF[mechanism]}")
    user, password = entry.options.get("username"), entry.options.get("password")
    if not user or password is None:
        raise ClientError("sasl.jaas.config has no username and password")
    return user, password, entry.options.get("tokenauth", "").lower() == "true"


def _bearer_login(options: Mapping[str, str]) -> OAuthBearerLogin:
    from penstock.security.sasl.logins import OAuthBearerLogin

    given = options.get(ACCESS_TOKEN)
    if given is not None:
        return OAuthBearerLogin(lambda: given)
    path = token_path(options)
    if path is None:
        raise ClientError(
            "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url=file:///..., the file with the token"
        )
    return OAuthBearerLogin(lambda: read_token(path))


def token_path(options: Mapping[str, str]) -> str | None:
    """The file with the token of OAUTHBEARER; None if the token comes from elsewhere."""
    parts = urllib.parse.urlsplit(options.get("sasl.oauthbearer.token.endpoint.url", ""))
    return urllib.parse.unquote(parts.path) if parts.scheme == "file" else None


def read_token(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(TOKEN_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{path}: the token cannot be read: {error}") from error


def _nonce() -> str:
    import secrets

    from penstock.security.sasl.scram import NONCE_BYTES, nonce_of

    return nonce_of(secrets.token_bytes(NONCE_BYTES))
