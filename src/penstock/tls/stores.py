"""Key stores and trust stores: a private key with its certificate chain, and the certificates of trusted authorities.

Kafka's formats: PEM (files, or the text in a setting), PKCS12 and JKS. As in Java, a store that is called JKS or
PKCS12 may be either one: its first bytes say which.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes, PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key, pkcs12

from penstock.tls import jks


class StoreError(Exception):
    """A store cannot be used. The message names the setting or the file, and never a secret."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and the chain of its certificate, the certificate itself first."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]


Trusted = tuple[x509.Certificate, ...]


# -- PEM ------------------------------------------------------------------------------------------------------------


def key_pair_from_pem(key: str, chain: str, password: str | None, *, source: str) -> KeyPair:
    """`source` names the setting or file, for errors."""
    try:
        private = load_pem_private_key(key.encode(), password.encode() if password else None)
    except (ValueError, TypeError) as error:
        # The library's texts speak of formats and passwords, never of their content.
        raise StoreError(f"{source}: the private key cannot be read ({_reason(error, password)})") from None
    return _checked(KeyPair(private, certificates_from_pem(chain, source=source)), source)


def certificates_from_pem(text: str, *, source: str) -> Trusted:
    try:
        certificates = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise StoreError(f"{source}: it contains no PEM certificate that can be read") from None
    return tuple(certificates)


# -- files ----------------------------------------------------------------------------------------------------------


def read_key_store(path: Path, kind: str, store_password: str | None, key_password: str | None) -> KeyPair:
    """Read a key store of type PEM, PKCS12 or JKS."""
    source = str(path)
    data = _read(path)
    if kind.upper() == "PEM":
        text = _text(data, source)
        return key_pair_from_pem(text, text, key_password, source=source)
    if store_password is None:
        raise StoreError(f"{source}: the password of the key store is not set (ssl.keystore.password)")
    if jks.is_jks(data):
        try:
            entries = jks.read(data, store_password)
            pair = next((entry for entry in entries if isinstance(entry, jks.KeyEntry)), None)
            if pair is None:
                raise StoreError(f"{source}: the key store contains no private key")
            key = load_der_private_key(pair.decrypted(key_password or store_password), None)
        except (jks.JksError, ValueError) as error:
            raise StoreError(f"{source}: {error}") from None
        return _checked(KeyPair(key, tuple(map(x509.load_der_x509_certificate, pair.chain))), source)
    store = _read_pkcs12(data, store_password, source)
    if store.key is None or store.cert is None:
        raise StoreError(f"{source}: the key store contains no private key with a certificate")
    chain = (store.cert.certificate, *(other.certificate for other in store.additional_certs))
    return _checked(KeyPair(store.key, _ordered(chain)), source)


def read_trust_store(path: Path, kind: str, store_password: str | None) -> Trusted:
    source = str(path)
    data = _read(path)
    if kind.upper() == "PEM":
        return certificates_from_pem(_text(data, source), source=source)
    if jks.is_jks(data):
        try:
            found = jks.read(data, store_password)
            trusted = tuple(
                x509.load_der_x509_certificate(entry.certificate) for entry in found if isinstance(entry, jks.Trusted)
            )
        except (jks.JksError, ValueError) as error:
            raise StoreError(f"{source}: {error}") from None
    else:
        store = _read_pkcs12(data, store_password or "", source)
        trusted = tuple(each.certificate for each in store.additional_certs)
    if not trusted:
        raise StoreError(f"{source}: the trust store contains no trusted certificate")
    return trusted


def _read_pkcs12(data: bytes, password: str, source: str) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, password.encode())
    except ValueError:
        raise StoreError(f"{source}: it is no PKCS12 or JKS store, or the password is wrong") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from None


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise StoreError(f"{source}: it is no PEM file") from None


def _ordered(chain: Trusted) -> Trusted:
    """Order a chain from the certificate to its issuers; a PKCS12 store keeps them in any order."""
    ordered, others = [chain[0]], list(chain[1:])
    while (issuer := next((each for each in others if each.subject == ordered[-1].issuer), None)) is not None:
        ordered.append(issuer)
        others.remove(issuer)
    return tuple(ordered)


def _checked(pair: KeyPair, source: str) -> KeyPair:
    own = cast(CertificateIssuerPrivateKeyTypes, pair.key).public_key()
    if pair.certificate.public_key() != own:
        raise StoreError(f"{source}: the private key does not belong to the first certificate of the chain")
    return pair


def _reason(error: Exception, password: str | None) -> str:
    if isinstance(error, TypeError):
        return "its password is not set" if password is None else "it is not encrypted, but a password is set"
    return "it is no PKCS#8 key in PEM, or its password is wrong"
