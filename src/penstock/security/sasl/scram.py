"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides, as Kafka uses them.

The server stores keys that are derived from the password, and the client proves that it knows the password without
sending it. Only the client derives keys from a password: that takes milliseconds, and the server has done it when the
credential was made.

A delegation token is a SCRAM user, too: the client adds the extension `tokenauth=true`, its name is the token's id, and
the principal is the token's owner. The server derives the credential of a token when it is first used.

An unknown user is refused at the first message, as in Kafka. The refusal of a wrong password reads the same, but comes
one message later.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.security.credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from penstock.security.principal import Principal
from penstock.security.sasl.exchange import Accepted, AuthenticationFailed, Challenge, Outcome, Verification
from penstock.security.sasl.scram_messages import (
    ClientFirst,
    encode,
    escape,
    parse_client_final,
    parse_client_first,
    parse_server_final,
    parse_server_first,
    server_first,
)

TOKEN_EXTENSION: Final = "tokenauth"
NONCE_BYTES: Final = 18
# A server that asks for more would keep its clients busy for minutes.
CLIENT_ITERATIONS_MAX: Final = 100 * MAX_ITERATIONS


def nonce_of(randomness: bytes) -> str:
    return encode(randomness)


class TokenCredential(NamedTuple):
    """A delegation token that may log in."""

    owner: Principal
    expires_at_ms: int
    # Derives the SCRAM credential. It takes milliseconds, so it runs in a thread.
    derive: Callable[[], ScramCredential]


class ScramServer:
    def __init__(
        self,
        mechanism: ScramMechanism,
        *,
        credential: Callable[[str], ScramCredential | None],
        token: Callable[[str], TokenCredential | None],
        nonce: str,
    ) -> None:
        """`credential` finds a user's credential by name, `token` a delegation token by id."""
        self._mechanism = mechanism
        self._find_credential = credential
        self._find_token = token
        self._nonce = nonce
        self._client_first: ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._accepted = Accepted(b"", Principal("User", ""))

    def step(self, token: bytes) -> Outcome:
        if self._client_first is None:
            return self._begin(parse_client_first(token))
        return self._finish(token)

    def _begin(self, first: ClientFirst) -> Outcome:
        self._client_first = first
        if first.extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            token = self._find_token(first.user)
            if token is None:
                raise AuthenticationFailed("there is no such delegation token, or it has expired")
            self._check_authorization_id(first)
            self._accepted = Accepted(b"", token.owner, token.expires_at_ms, by_token=True)
            return Verification(lambda: self._challenge(first, token.derive()))
        credential = self._find_credential(first.user)
        if credential is None:
            raise AuthenticationFailed(f"user {first.user!r} has no {self._mechanism.title} credential")
        self._check_authorization_id(first)
        self._accepted = Accepted(b"", Principal("User", first.user))
        return self._challenge(first, credential)

    @staticmethod
    def _check_authorization_id(first: ClientFirst) -> None:
        if first.authorization_id not in ("", first.user):
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationFailed(text, text)

    def _challenge(self, first: ClientFirst, credential: ScramCredential) -> Challenge:
        if credential.iterations < MIN_ITERATIONS:
            raise AuthenticationFailed(f"{credential.iterations} iterations are fewer than {MIN_ITERATIONS}")
        self._credential = credential
        self._server_first = server_first(first.nonce + self._nonce, credential.salt, credential.iterations)
        return Challenge(self._server_first.encode("ascii"))

    def _finish(self, token: bytes) -> Accepted:
        first, credential, self._credential = self._client_first, self._credential, None
        if first is None or credential is None:
            raise AuthenticationFailed("a SCRAM message after the last one")
        final = parse_client_final(token)
        if final.nonce != first.nonce + self._nonce:
            raise AuthenticationFailed("the nonce of client-final is not the one of this exchange")
        if final.channel_binding != first.gs2_header.encode("ascii"):
            raise AuthenticationFailed("the channel binding of client-final is not the gs2 header of client-first")
        message = f"{first.bare},{self._server_first},{final.without_proof}".encode("ascii")
        name = self._mechanism.hash_name
        signature = hmac.digest(credential.stored_key, message, name)
        if len(final.proof) != len(signature):
            raise AuthenticationFailed("the proof of client-final has the wrong length")
        client_key = _xor(signature, final.proof)
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            raise AuthenticationFailed(f"the proof of user {first.user!r} is wrong")
        answer = f"v={encode(hmac.digest(credential.server_key, message, name))}"
        return self._accepted._replace(token=answer.encode("ascii"))


class ScramClient:
    """The client's side. `step` computes PBKDF2, which takes milliseconds."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        *,
        extensions: Mapping[str, str] | None = None,
        derive: Callable[[bytes, int], bytes] | None = None,
    ) -> None:
        """`derive` replaces PBKDF2 of the password by a cached result; it gets the salt and the iterations."""
        self._mechanism = mechanism
        self._nonce = nonce
        pairs = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._bare = f"n={escape(user)},r={self._nonce}{pairs}"
        self._derive = derive or _derivation(mechanism, password)
        self._signature: bytes | None = None
        self._is_done = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> bytes | None:
        if self._is_done:
            raise AuthenticationFailed("the server sends a SCRAM message after the last one")
        if self._signature is not None:
            if not hmac.compare_digest(parse_server_final(token), self._signature):
                raise AuthenticationFailed("the server's signature is wrong: it does not know this user's credential")
            self._is_done = True
            return None
        return self._prove(token)

    def _prove(self, token: bytes) -> bytes:
        first = parse_server_first(token)
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise AuthenticationFailed("the server's nonce does not begin with ours")
        if not MIN_ITERATIONS <= first.iterations <= CLIENT_ITERATIONS_MAX:
            raise AuthenticationFailed(f"the server asks for {first.iterations} iterations")
        name = self._mechanism.hash_name
        salted = self._derive(first.salt, first.iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        without_proof = f"c=biws,r={first.nonce}"
        message = f"{self._bare},{token.decode('ascii')},{without_proof}".encode()
        proof = _xor(client_key, hmac.digest(hashlib.new(name, client_key).digest(), message, name))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
        return f"{without_proof},p={encode(proof)}".encode()


def _derivation(mechanism: ScramMechanism, password: str) -> Callable[[bytes, int], bytes]:
    def derive(salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)

    return derive


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
