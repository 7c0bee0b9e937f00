"""PLAIN (RFC 4616): the client sends its name and its password in one message.

    [authorization id] NUL user NUL password

The users are those of the JAAS configuration, or those of an authenticator plug-in. An unknown user and a wrong
password get the same answer, after the same work.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from penstock.security.principal import Principal
from penstock.security.sasl.exchange import Accepted, AuthenticationFailed, Outcome, Verification

_INVALID: Final = "Authentication failed: Invalid username or password"
_PARTS: Final = 3


class PlainServer:
    def __init__(self, check: Callable[[str, str], bool], *, may_block: bool = False) -> None:
        """`check` gets the user and the password. If it `may_block`, it runs in a thread."""
        self._check = check
        self._may_block = may_block
        self._is_over = False

    def step(self, token: bytes) -> Outcome:
        if self._is_over:
            raise AuthenticationFailed("a PLAIN message after the last one")
        self._is_over = True
        authorization_id, user, password = _parse(token)

        def verify() -> Accepted:
            if not self._check(user, password):
                raise AuthenticationFailed(f"unknown user {user!r}, or a wrong password", _INVALID)
            if authorization_id not in ("", user):
                text = "Authentication failed: Client requested an authorization id that is different from username"
                raise AuthenticationFailed(text, text)
            return Accepted(b"", Principal("User", user))

        return Verification(verify) if self._may_block else verify()


def _parse(token: bytes) -> tuple[str, str, str]:
    parts = token.split(b"\0", _PARTS)
    if len(parts) != _PARTS:
        text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        raise AuthenticationFailed(text, text)
    try:
        authorization_id, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise AuthenticationFailed("a PLAIN message that is not UTF-8", _INVALID) from None
    for name, value in (("username", user), ("password", password)):
        if not value:
            text = f"Authentication failed: {name} not specified"
            raise AuthenticationFailed(text, text)
    return authorization_id, user, password


def known_users(passwords: Mapping[str, str]) -> Callable[[str, str], bool]:
    """A check against a fixed list.

    Digests are compared, so that neither the length nor a common beginning shows in the time; an unknown user costs the
    same comparison.
    """
    digests = {user: _digest(password) for user, password in passwords.items()}

    def check(user: str, password: str) -> bool:
        expected = digests.get(user)
        is_equal = hmac.compare_digest(_digest(password), expected or _NOBODY)
        return is_equal and expected is not None

    return check


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


_NOBODY: Final = bytes(32)


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self._token = b"\0".join((b"", user.encode(), password.encode()))

    def first(self) -> bytes:
        return self._token

    def step(self, token: bytes) -> bytes | None:
        if token:
            raise AuthenticationFailed("the server answers PLAIN with a challenge")
        return None
