"""The authenticator `password-file`: users and hashed passwords in a file, which is read again when it changes.

    penstock.sasl.plain.authenticator=password-file
    penstock.authenticator.password-file.path=/etc/penstock/passwords

A line is `user:$scrypt$n=16384,r=8,p=1$salt$hash`, with salt and hash in base64; `penstock users hash-password` makes
the part after the colon. Empty lines and lines that begin with # are ignored. A file that cannot be read, or is
malformed, leaves the users as they were, and the log says so.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

logger = logging.getLogger("penstock.authentication")

_LINE: Final = re.compile(
    r"(?P<user>[^:]+):\$scrypt\$n=(?P<n>[0-9]{1,7}),r=(?P<r>[0-9]{1,2}),p=(?P<p>[0-9]{1,2})\$(?P<salt>[^$]+)\$(?P<hash>[^$]+)"
)
N, R, P = 16384, 8, 1
MEMORY_MAX: Final = 256 << 20
HASH_BYTES: Final = 32


class StoredPassword(NamedTuple):
    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, password: str) -> bool:
        return hmac.compare_digest(_scrypt(password, self.salt, self.n, self.r, self.p), self.digest)


# An unknown user costs as much time as a known one.
_NOBODY: Final = StoredPassword(N, R, P, bytes(16), bytes(HASH_BYTES))


def hash_password(password: str, salt: bytes) -> str:
    """The part of a line after `user:`."""
    digest = _scrypt(password, salt, N, R, P)
    return f"$scrypt$n={N},r={R},p={P}${_text(salt)}${_text(digest)}"


class PasswordFile:
    def __init__(self, options: Mapping[str, str]) -> None:
        path = options.get("path", "")
        if not path:
            raise ValueError("penstock.authenticator.password-file.path is not set")
        self._path = path
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._users = _read(path)

    def __call__(self, user: str, password: str) -> bool:
        stored = self._current().get(user)
        is_right = (stored or _NOBODY).matches(password)
        return is_right and stored is not None

    def _current(self) -> dict[str, StoredPassword]:
        with self._lock:
            try:
                stamp = _stamp(self._path)
                if stamp != self._stamp:
                    self._stamp = stamp
                    self._users = _read(self._path)
                    logger.info("%s was read again: %d users", self._path, len(self._users))
            except (OSError, ValueError) as error:
                logger.error("%s cannot be used, and the users stay as they were: %s", self._path, error)
            return self._users


def _stamp(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: str) -> dict[str, StoredPassword]:
    users: dict[str, StoredPassword] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            match = _LINE.fullmatch(text)
            if match is None:
                raise ValueError(f"{path}: line {number} is not user:$scrypt$n=...,r=...,p=...$salt$hash")
            try:
                salt, digest = (base64.b64decode(match[part], validate=True) for part in ("salt", "hash"))
            except binascii.Error:
                raise ValueError(f"{path}: line {number} has malformed base64") from None
            stored = StoredPassword(int(match["n"]), int(match["r"]), int(match["p"]), salt, digest)
            if stored.n < 2 or stored.n & (stored.n - 1) or not 128 * stored.n * stored.r < MEMORY_MAX or not stored.p:
                raise ValueError(f"{path}: line {number} has parameters that scrypt cannot use")
            users[match["user"]] = stored
    return users


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * MEMORY_MAX, dklen=HASH_BYTES)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
