"""Certificates as files: the directory of an authority, and the key stores that it issues.

    DIR/ca.pem       the authority's certificate: what others have to trust
    DIR/ca-key.pem   its private key and certificate; keep it offline if nothing is to be issued

A key store is a PEM file with a private key and the certificate. Files with a key are readable by their owner only.
Every file is replaced as a whole, because nodes look for changed files while they run.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.tls.authority import CERTIFICATE_DAYS, Authority
from penstock.tls.names import distinguished_name

TRUST_STORE: Final = "ca.pem"
AUTHORITY_KEY: Final = "ca-key.pem"


class CertificateError(Exception):
    """A certificate cannot be read, issued or renewed; the message is one line."""


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """A certificate of a file."""

    path: str
    subject: str
    issuer: str
    hosts: tuple[str, ...]
    expires: datetime.datetime
    common_name: str
    is_authority: bool

    def days_left(self, now: datetime.datetime) -> int:
        return (self.expires - now).days


def create_authority(directory: str, name: str, now: datetime.datetime) -> Authority:
    for file in (TRUST_STORE, AUTHORITY_KEY):
        if os.path.exists(os.path.join(directory, file)):
            raise CertificateError(f"{directory} has an authority already: {file} exists")
    os.makedirs(directory, exist_ok=True)
    authority = Authority.create(name, now)
    write_private(os.path.join(directory, AUTHORITY_KEY), authority.pem)
    write_public(os.path.join(directory, TRUST_STORE), authority.certificate)
    return authority


def open_authority(directory: str) -> Authority:
    path = os.path.join(directory, AUTHORITY_KEY)
    try:
        return Authority.load(_read(path))
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path}: it is not the key of an authority ({error})") from None


def issue(
    authority: Authority, path: str, name: str, hosts: Iterable[str], now: datetime.datetime, days: int | None = None
) -> None:
    """Write a key store with a new key."""
    try:
        issued = authority.issue(name, hosts, now, days=days or CERTIFICATE_DAYS)
    except ValueError as error:
        raise CertificateError(f"a certificate for {name} cannot be issued: {error}") from None
    write_private(path, issued.pem)


def renew(authority: Authority, path: str, now: datetime.datetime, days: int | None = None) -> None:
    """Replace the key and the certificate in a key store by new ones with the same names."""
    old = read_certificate(path)
    if old.is_authority:
        raise CertificateError(f"{path}: the certificate of an authority is not renewed; create a new authority")
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode()).subject
    if old.issuer != distinguished_name(issuer) or old.subject != f"CN={old.common_name}":
        raise CertificateError(f"{path}: {old.subject} was issued by {old.issuer}, not by this authority")
    issue(authority, path, old.common_name, old.hosts, now, days)


def read_certificate(path: str) -> CertificateFile:
    """The first of a file: in a key store, the owner's."""
    return read_certificates(path)[0]


def read_certificates(path: str) -> list[CertificateFile]:
    try:
        certificates = x509.load_pem_x509_certificates(_read(path).encode())
    except ValueError:
        raise CertificateError(f"{path}: it has no certificate in PEM") from None
    return [_described(path, each) for each in certificates]


def _described(path: str, certificate: x509.Certificate) -> CertificateFile:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return CertificateFile(
        path=path,
        subject=distinguished_name(certificate.subject),
        issuer=distinguished_name(certificate.issuer),
        hosts=_hosts_of(certificate),
        expires=certificate.not_valid_after_utc,
        common_name=str(names[0].value) if names else "",
        is_authority=_is_authority(certificate),
    )


def write_private(path: str, text: str) -> None:
    """Replace a file by one that only its owner may read."""
    _replace(path, text, 0o600)


def write_public(path: str, text: str) -> None:
    _replace(path, text, 0o644)


def _replace(path: str, text: str, mode: int) -> None:
    new = f"{path}.{secrets.token_hex(4)}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CertificateError(f"{path}: it is not a PEM file") from None


def _hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, (x509.DNSName, x509.IPAddress)))


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
