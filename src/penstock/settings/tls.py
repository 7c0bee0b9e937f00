"""TLS settings, by Kafka's names.

Each may be given for one listener only, as `listener.name.NAME.ssl...`; that value wins over the one without prefix.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.settings.definition import (
    Scope,
    Setting,
    Type,
    attribute_of,
    boolean,
    distinct,
    one_of,
    setting,
    settings_of,
    string,
    strings,
)

PROTOCOLS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    ssl_keystore_type: str = string(
        "JKS",
        "The format of the key store: JKS, PKCS12 or PEM. JKS and PKCS12 are recognized by their first bytes.",
        one_of("jks", "pkcs12", "pem", ignore_case=True),
        scope=Scope.PER_BROKER,
    )
    ssl_keystore_location: str = string(
        "",
        "The file with the private key and the certificate chain of this node. A changed file is read again, without "
        "a restart.",
        scope=Scope.PER_BROKER,
    )
    ssl_keystore_password: str | None = setting(
        Type.PASSWORD,
        None,
        "The password of the key store; not for PEM.",
        scope=Scope.PER_BROKER,
    )
    ssl_key_password: str | None = setting(
        Type.PASSWORD,
        None,
        "The password of the private key in the key store; default: the password of the key store.",
        scope=Scope.PER_BROKER,
    )
    ssl_keystore_key: str | None = setting(
        Type.PASSWORD,
        None,
        "The private key itself, as PEM (PKCS#8).",
        scope=Scope.PER_BROKER,
    )
    ssl_keystore_certificate_chain: str | None = setting(
        Type.PASSWORD,
        None,
        "The certificate chain itself, as PEM.",
        scope=Scope.PER_BROKER,
    )
    ssl_truststore_type: str = string(
        "JKS",
        "The format of the trust store: JKS, PKCS12 or PEM.",
        one_of("jks", "pkcs12", "pem", ignore_case=True),
        scope=Scope.PER_BROKER,
    )
    ssl_truststore_location: str = string(
        "",
        "The file with the certificates of trusted authorities; default: those of the operating system.",
        scope=Scope.PER_BROKER,
    )
    ssl_truststore_password: str | None = setting(
        Type.PASSWORD,
        None,
        "The password of the trust store; not for PEM.",
        scope=Scope.PER_BROKER,
    )
    ssl_truststore_certificates: str | None = setting(
        Type.PASSWORD,
        None,
        "The certificates of trusted authorities themselves, as PEM.",
        scope=Scope.PER_BROKER,
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients must have a certificate. On a SASL_SSL listener only the setting with the listener's prefix "
        "counts.",
        one_of("none", "requested", "required"),
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        "How the name of a client's certificate becomes a user: DEFAULT, or RULE:pattern/replacement/[LU], ...",
    )
    ssl_enabled_protocols: tuple[str, ...] = strings(
        PROTOCOLS,
        "The versions of TLS that are accepted.",
        distinct(*PROTOCOLS, empty=False),
    )
    ssl_protocol: str = string(
        "TLSv1.3",
        "Kept for Kafka's files; ssl.enabled.protocols decides.",
        one_of("TLS", *PROTOCOLS),
    )
    ssl_cipher_suites: tuple[str, ...] = strings(
        (),
        "The cipher suites of TLS 1.2 that are accepted, by their standard names or by those of OpenSSL; default: "
        "those that OpenSSL considers safe.",
        distinct(),
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "https: when this node connects to another one, the name in the certificate must be the host it connects to. "
        "Empty: it may be any.",
    )
    ssl_allow_dn_changes: bool = boolean(
        False,
        "Whether a renewed certificate may have another distinguished name.",
    )
    ssl_allow_san_changes: bool = boolean(
        False,
        "Whether a renewed certificate may have other subject alternative names.",
    )


TLS_SETTINGS = settings_of(TlsSettings)


_LISTENER_SETTING = re.compile(r"listener\.name\.[^.]+\.(ssl\..*)")


def is_of_listener_tls(name: str) -> bool:
    """Whether this is a TLS setting of one listener."""
    return general_tls_name(name) is not None


def general_tls_name(name: str) -> str | None:
    """The TLS setting without the prefix of a listener; None for other settings."""
    match = _LISTENER_SETTING.fullmatch(name)
    return match[1] if match is not None and match[1] in TLS_SETTINGS else None


def listener_tls_setting(name: str) -> Setting | None:
    """The definition of a TLS setting of one listener; None for other settings."""
    general = general_tls_name(name)
    return None if general is None else dataclasses.replace(TLS_SETTINGS[general], name=name)


def tls_of_listener(name: str, properties: Mapping[str, str], *, with_sasl: bool = False) -> TlsSettings:
    """The TLS settings of a listener. With SASL, `ssl.client.auth` without the listener's prefix does not count."""
    prefix = f"listener.name.{name.lower()}."
    values = {}
    for setting_name, definition in TLS_SETTINGS.items():
        general = None if with_sasl and setting_name == "ssl.client.auth" else properties.get(setting_name)
        text = properties.get(prefix + setting_name, general)
        if text is not None:
            values[attribute_of(setting_name)] = definition.parse(text)
    return TlsSettings(**values)
