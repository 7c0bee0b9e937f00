"""Java's JKS key stores, read only.

A JKS file is a list of entries and a SHA-1 digest over the password and all bytes before it. Certificates are stored
as they are. A private key is stored as an EncryptedPrivateKeyInfo of Sun's own algorithm, a key stream of SHA-1
digests: obfuscation by today's measure. It is decoded here because no maintained library does, and Kafka's default
store type is JKS; new stores should be PEM or PKCS12, which have real encryption.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

MAGIC: Final = 0xFEEDFEED
VERSIONS: Final = (1, 2)
DIGEST_BYTES: Final = 20
ENTRIES_MAX: Final = 10_000

_SALT_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_KEY_PROTECTOR: Final = bytes.fromhex("2b060104012a02110101")  # OID 1.3.6.1.4.1.42.2.17.1.1


class JksError(Exception):
    """The store is damaged, or the password is wrong."""


@dataclass(frozen=True, slots=True)
class Trusted:
    alias: str
    certificate: bytes
    """DER."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    alias: str
    protected: bytes
    chain: tuple[bytes, ...]
    """DER, the certificate of the key first."""

    def decrypted(self, password: str) -> bytes:
        """Return the private key as PKCS#8 DER."""
        return _unprotect(_encrypted_data(self.protected), _utf16(password))


Entry = Trusted | KeyEntry


def is_jks(data: bytes) -> bool:
    return len(data) >= 4 and struct.unpack_from(">I", data)[0] == MAGIC


def read(data: bytes, password: str | None) -> list[Entry]:
    """Read all entries. Without a password the digest is not checked, as in Java; only trust stores allow that."""
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_utf16(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("the JKS store is damaged, or its password is wrong")
    try:
        return list(_entries(_Reader(body)))
    except (struct.error, UnicodeDecodeError, IndexError):
        raise JksError("the JKS store is damaged") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return int(value)

    def take(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        if len(taken) != length:
            raise IndexError
        self._position += length
        return taken

    def text(self) -> str:
        return self.take(self.number(">H")).decode()

    def certificate(self, version: int) -> bytes:
        if version == 2 and self.text() != "X.509":
            raise JksError("the JKS store contains a certificate that is no X.509 certificate")
        return self.take(self.number(">I"))


def _entries(reader: _Reader) -> Iterator[Entry]:
    magic, version, count = reader.number(">I"), reader.number(">I"), reader.number(">I")
    if magic != MAGIC or version not in VERSIONS:
        raise JksError(f"a JKS store of version {version} is not supported")
    if count > ENTRIES_MAX:
        raise JksError(f"the JKS store claims to contain {count} entries")
    for _ in range(count):
        kind, alias = reader.number(">I"), reader.text()
        reader.number(">Q")  # when it was made
        if kind == 1:
            protected = reader.take(reader.number(">I"))
            certificates = reader.number(">I")
            if certificates > ENTRIES_MAX:
                raise JksError(f"the JKS store claims a chain of {certificates} certificates")
            yield KeyEntry(alias, protected, tuple(reader.certificate(version) for _ in range(certificates)))
        elif kind == 2:
            yield Trusted(alias, reader.certificate(version))
        else:
            raise JksError(f"the JKS store contains an entry of unknown type {kind}")


def _encrypted_data(protected: bytes) -> bytes:
    """Return the data of an EncryptedPrivateKeyInfo: SEQUENCE { SEQUENCE { OID, NULL }, OCTET STRING }."""
    try:
        outer, _ = _value(protected, 0, 0x30)
        algorithm, after = _value(outer, 0, 0x30)
        oid, _ = _value(algorithm, 0, 0x06)
        data, _ = _value(outer, after, 0x04)
    except (IndexError, ValueError):
        raise JksError("the private key in the JKS store is damaged") from None
    if oid != _KEY_PROTECTOR:
        raise JksError("the private key in the JKS store is protected in a way that JKS does not have")
    return data


def _value(data: bytes, position: int, tag: int) -> tuple[bytes, int]:
    """Return the content of the DER element at `position`, and where it ends."""
    if data[position] != tag:
        raise ValueError
    length, position = data[position + 1], position + 2
    if length & 0x80:
        size = length & 0x7F
        length, position = int.from_bytes(data[position : position + size], "big"), position + size
    if position + length > len(data):
        raise IndexError
    return data[position : position + length], position + length


def _unprotect(data: bytes, password: bytes) -> bytes:
    salt, hidden, check = data[:_SALT_BYTES], data[_SALT_BYTES:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    stream = islice(chain.from_iterable(_digests(password, salt)), len(hidden))
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=True))
    if not hmac.compare_digest(hashlib.sha1(password + key, usedforsecurity=False).digest(), check):
        raise JksError("the private key in the JKS store cannot be read: its password is wrong")
    return key


def _digests(password: bytes, digest: bytes) -> Iterator[bytes]:
    while True:
        digest = hashlib.sha1(password + digest, usedforsecurity=False).digest()
        yield digest


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
