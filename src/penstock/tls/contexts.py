"""TLS contexts made from settings, and renewed while they are used.

A `TlsContexts` has one context for accepting connections and one for opening them. `renew` replaces both after a file
or a setting has changed: new connections use the new certificate, and existing connections go on with the old one. A
renewed certificate must have the names of the old one (Kafka's rule, which `ssl.allow.dn.changes` and
`ssl.allow.san.changes` lift): otherwise the old one stays in use.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from penstock.security.principal import ANONYMOUS, Principal
from penstock.settings.tls import TlsSettings
from penstock.tls.names import PrincipalRules, distinguished_name, subject_alternative_names
from penstock.tls.stores import (
    KeyPair,
    StoreError,
    Trusted,
    certificates_from_pem,
    key_pair_from_pem,
    read_key_store,
    read_trust_store,
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class FileState(NamedTuple):
    """What tells that a file has changed."""

    path: str
    modified_ns: int
    size: int
    inode: int


class TlsContexts:
    def __init__(self, settings: TlsSettings, *, accepts: bool = True) -> None:
        """`accepts`: there is a listener, which needs a key. StoreError if the stores cannot be used."""
        self._accepts = accepts
        self._files = _files_of(settings)
        self._use(settings, _key_pair(settings), _trusted(settings))

    def _use(self, settings: TlsSettings, pair: KeyPair | None, trusted: Trusted | None) -> None:
        rules = PrincipalRules.parse(settings.ssl_principal_mapping_rules)
        connecting = _connecting(settings, pair, trusted)
        if self._accepts:
            self.accepting = _accepting(settings, pair, trusted)
            """For a listener. Take it anew for every connection, as `connecting`."""
        self.connecting = connecting
        self._settings, self._pair, self._rules = settings, pair, rules

    def renew(self, settings: TlsSettings | None = None) -> bool:
        """Use changed files or settings for new connections; False if nothing has changed.

        StoreError if what is new cannot be used; the old stays in use.
        """
        settings = settings or self._settings
        files = _files_of(settings)
        if settings == self._settings and files == self._files:
            return False
        self._files = files  # a file that cannot be used is read again only when it has changed again
        pair, trusted = _key_pair(settings), _trusted(settings)
        _check_names(self._pair, pair, settings)
        self._use(settings, pair, trusted)
        return True

    def check(self, settings: TlsSettings, *, trusts_itself: bool) -> None:
        """StoreError if `renew` could not use these settings. `trusts_itself`: the listener's certificate must be one
        that the listener's own trust store accepts, because nodes connect to each other with these settings."""
        pair, trusted = _key_pair(settings), _trusted(settings)
        _check_names(self._pair, pair, settings)
        PrincipalRules.parse(settings.ssl_principal_mapping_rules)
        accepting, connecting = _accepting(settings, pair, trusted), _connecting(settings, pair, trusted)
        if trusts_itself:
            _check_trust(accepting, connecting)

    @property
    def own_principal(self) -> Principal:
        """The user that a listener with the same settings takes this node for."""
        if self._pair is None or self._settings.ssl_client_auth == "none":
            return ANONYMOUS
        return self._rules.principal_of(distinguished_name(self._pair.certificate.subject))

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The user that a client's certificate (DER) names; ANONYMOUS for a client without one.

        NoRuleMatches if the rules know no user for it.
        """
        if certificate is None:
            return ANONYMOUS
        subject = x509.load_der_x509_certificate(certificate).subject
        return self._rules.principal_of(distinguished_name(subject))


def _accepting(settings: TlsSettings, pair: KeyPair | None, trusted: Trusted | None) -> ssl.SSLContext:
    if pair is None:
        raise StoreError("a TLS listener needs a private key and a certificate: set ssl.keystore.location")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _CLIENT_AUTH[settings.ssl_client_auth]
    _configure(context, settings, pair, trusted)
    return context


def _connecting(settings: TlsSettings, pair: KeyPair | None, trusted: Trusted | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm.lower() == "https"
    _configure(context, settings, pair, trusted)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client, which needs no certificate of its own unless the broker asks for one."""
    return _connecting(settings, _key_pair(settings), _trusted(settings))


class PemStores(NamedTuple):
    """The stores of a client as PEM, for a library that reads nothing else. None: not set."""

    authorities: str | None
    key: str | None
    chain: str | None

    def __repr__(self) -> str:
        return "PemStores(values hidden)"


def pem_stores(settings: TlsSettings) -> PemStores:
    """The key is not encrypted. StoreError if the stores cannot be used."""
    trusted, pair = _trusted(settings), _key_pair(settings)
    authorities = None if trusted is None else _pem_of(trusted)
    if pair is None:
        return PemStores(authorities, None, None)
    key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return PemStores(authorities, key, _pem_of(pair.chain))


def _pem_of(certificates: Trusted) -> str:
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def _configure(context: ssl.SSLContext, settings: TlsSettings, pair: KeyPair | None, trusted: Trusted | None) -> None:
    versions = [_VERSIONS[name] for name in settings.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if settings.ssl_cipher_suites:
        _set_ciphers(context, settings.ssl_cipher_suites)
    if pair is not None:
        _load(context, pair)
    if trusted is None:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH if context.protocol is ssl.PROTOCOL_TLS_SERVER else ssl.Purpose.SERVER_AUTH
        )
    else:
        context.load_verify_locations(cadata=_pem_of(trusted))


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Give the context a key. The `ssl` module reads keys from files only, so one is written, with a random password.

    Nothing readable remains on the disk, whatever happens to the file.
    """
    password = secrets.token_urlsafe(32)
    key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    descriptor, path = tempfile.mkstemp(prefix="penstock-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key + b"".join(each.public_bytes(Encoding.PEM) for each in pair.chain))
        context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        raise StoreError(f"OpenSSL does not accept the certificate: {error.reason or error}") from None
    finally:
        os.unlink(path)


def _check_trust(accepting: ssl.SSLContext, connecting: ssl.SSLContext) -> None:
    connecting.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        connecting.wrap_bio(to_client, to_server),
        accepting.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        while ends:
            for end in list(ends):
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    ends.remove(end)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or error
        raise StoreError(
            f"nodes that use the new stores would not accept each other's certificates ({reason}): let them trust both "
            "authorities first"
        ) from None


# -- what the settings name -----------------------------------------------------------------------------------------


def _key_pair(settings: TlsSettings) -> KeyPair | None:
    if settings.ssl_keystore_key is not None:
        if settings.ssl_keystore_certificate_chain is None:
            raise StoreError("ssl.keystore.key needs ssl.keystore.certificate.chain")
        return key_pair_from_pem(
            _pem_text(settings.ssl_keystore_key),
            _pem_text(settings.ssl_keystore_certificate_chain),
            settings.ssl_key_password,
            source="ssl.keystore.key",
        )
    if not settings.ssl_keystore_location:
        return None
    return read_key_store(
        Path(settings.ssl_keystore_location),
        settings.ssl_keystore_type,
        settings.ssl_keystore_password,
        settings.ssl_key_password,
    )


def _trusted(settings: TlsSettings) -> Trusted | None:
    if settings.ssl_truststore_certificates is not None:
        return certificates_from_pem(
            _pem_text(settings.ssl_truststore_certificates), source="ssl.truststore.certificates"
        )
    if not settings.ssl_truststore_location:
        return None
    return read_trust_store(
        Path(settings.ssl_truststore_location), settings.ssl_truststore_type, settings.ssl_truststore_password
    )


_PEM_BLOCK: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)(.*?)(-----END [A-Z0-9 ]+-----)", re.DOTALL)


def _pem_text(text: str) -> str:
    """Restore the lines of PEM that was written into one line of a properties file."""
    return "\n".join(f"{begin}\n{''.join(body.split())}\n{end}" for begin, body, end in _PEM_BLOCK.findall(text))


def _files_of(settings: TlsSettings) -> tuple[FileState, ...]:
    return tuple(_state_of(path) for path in (settings.ssl_keystore_location, settings.ssl_truststore_location) if path)


def _state_of(path: str) -> FileState:
    try:
        found = os.stat(path)
    except OSError:
        return FileState(path, -1, -1, -1)
    return FileState(path, found.st_mtime_ns, found.st_size, found.st_ino)


def _check_names(old: KeyPair | None, new: KeyPair | None, settings: TlsSettings) -> None:
    if old is None or new is None:
        return
    before, after = distinguished_name(old.certificate.subject), distinguished_name(new.certificate.subject)
    if before != after and not settings.ssl_allow_dn_changes:
        raise StoreError(f"the new certificate is of {after}, the old one of {before}: see ssl.allow.dn.changes")
    names = subject_alternative_names(new.certificate)
    missing = subject_alternative_names(old.certificate) - names
    if missing and not settings.ssl_allow_san_changes:
        raise StoreError(
            f"the new certificate lacks subject alternative names of the old one ({', '.join(sorted(missing))}): "
            "see ssl.allow.san.changes"
        )


# -- cipher suites --------------------------------------------------------------------------------------------------

_TLS13_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})


def _set_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """The suites of TLS 1.3 are all sound, and Python's `ssl` cannot choose among them."""
    older = [openssl_name(suite) for suite in suites if suite not in _TLS13_SUITES]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    for suite, name in zip([each for each in suites if each not in _TLS13_SUITES], older, strict=True):
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise StoreError(f"ssl.cipher.suites: OpenSSL has no cipher suite {suite}") from None
    context.set_ciphers(":".join(older))


def openssl_name(suite: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256` to OpenSSL."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite[4:].partition("_WITH_")
    cipher = re.sub(r"(AES|CAMELLIA|ARIA)_(128|256)", r"\1\2", cipher)
    cipher = cipher.replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    name = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return name.replace("_", "-")
