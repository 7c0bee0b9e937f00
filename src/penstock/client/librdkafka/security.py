"""Security settings by Kafka's names, as librdkafka understands them.

The names of Java's clients (`sasl.jaas.config`, `ssl.truststore.location`, ...) become librdkafka's; its own names stay
as they are. Stores in Java's formats are read here and passed on as PEM in memory. librdkafka cannot log in with a
delegation token, and it has no setting for the versions of TLS.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.client.access import Access
from penstock.client.errors import BadSetting
from penstock.client.librdkafka import properties
from penstock.client.wire.login import ACCESS_TOKEN, password_of, read_token, token_path
from penstock.model.errors import KafkaError
from penstock.settings.definition import attribute_of
from penstock.settings.tls import TLS_SETTINGS, TlsSettings
from penstock.tls import open_pem_stores

_PREFIXES: Final = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "oauth_cb")
_JAAS: Final = "sasl.jaas.config"
_NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
_CIPHERS: Final = "ssl.cipher.suites"
_TRUST: Final = ("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password")
_AUTHORITIES: Final = "ssl.truststore.certificates"
_KEYS: Final = ("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password")
_INLINE_KEY: Final = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
# Of a token whose expiry is not known.
_TOKEN_S: Final = 300.0


def settings_of(access: Access) -> dict[str, Any]:
    """The security settings that bootstrap addresses refer to. Other settings in the same file are for other tools."""
    found = with_librdkafka_names({"ssl.keystore.type": "JKS", **access.properties})
    return {name: value for name, value in found.items() if name in properties.BOTH and name.startswith(_PREFIXES)}


def with_librdkafka_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Kafka's names; other settings are unchanged. BadSetting where librdkafka has nothing like it."""
    found = dict(given)
    _translate_login(found)
    _translate_trust(found)
    _translate_key(found)
    if found.get(_NAME_CHECK) == "":
        found[_NAME_CHECK] = "none"
    if "," in found.get(_CIPHERS, "") or "_WITH_" in found.get(_CIPHERS, ""):
        from penstock.tls.contexts import openssl_name

        found[_CIPHERS] = ":".join(openssl_name(each.strip()) for each in found[_CIPHERS].split(","))
    return found


def _translate_login(found: dict[str, Any]) -> None:
    mechanism = found.get("sasl.mechanism") or found.get("sasl.mechanisms") or ""
    given = found.pop(ACCESS_TOKEN, None)
    if given is not None:
        found.setdefault("oauth_cb", lambda _: _with_expiry(given))
    path = token_path(found) if mechanism == "OAUTHBEARER" else None
    if path is not None:
        del found["sasl.oauthbearer.token.endpoint.url"]
        found.setdefault("oauth_cb", lambda _: _token(path))
    if _JAAS not in found:
        return
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        user, password, by_token = password_of(found, mechanism)
        if by_token:
            raise BadSetting(
                f"{_JAAS}: librdkafka cannot log in with a delegation token; penstock.Admin, penstock.arrow and Spark "
                "with Penstock can"
            )
        found |= {"sasl.username": user, "sasl.password": password}
    del found[_JAAS]


def _token(path: str) -> tuple[str, float]:
    """The token and when it expires, in seconds since 1970; librdkafka asks again before that."""
    return _with_expiry(read_token(path))


def _with_expiry(token: str) -> tuple[str, float]:
    try:
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return token, float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return token, time.time() + _TOKEN_S


def _translate_trust(found: dict[str, Any]) -> None:
    location = found.get("ssl.truststore.location")
    if _AUTHORITIES in found or (location and not _is_pem(found, "ssl.truststore.type")):
        found["ssl.ca.pem"] = _stores(found, (*_TRUST, _AUTHORITIES)).authorities
    elif location:
        found["ssl.ca.location"] = location
    for name in (*_TRUST, _AUTHORITIES):
        found.pop(name, None)


def _translate_key(found: dict[str, Any]) -> None:
    location = found.get("ssl.keystore.location")
    if location and _is_pem(found, "ssl.keystore.type"):
        found |= {"ssl.key.location": location, "ssl.certificate.location": location}
    elif _INLINE_KEY[0] in found or (location and "ssl.keystore.type" in found):
        stores = _stores(found, (*_KEYS, *_INLINE_KEY, "ssl.key.password"))
        found |= {"ssl.key.pem": stores.key, "ssl.certificate.pem": stores.chain}
        found.pop("ssl.key.password", None)
    else:
        return  # none, or a PKCS12 store, which librdkafka reads
    for name in (*_KEYS, *_INLINE_KEY):
        found.pop(name, None)


def _is_pem(found: Mapping[str, Any], name: str) -> bool:
    return str(found.get(name, "")).upper() == "PEM"


def _stores(found: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    try:
        values = {attribute_of(name): TLS_SETTINGS[name].parse(found[name]) for name in names if name in found}
        return open_pem_stores(TlsSettings(**values))
    except KafkaError as error:
        raise BadSetting(error.message) from error
