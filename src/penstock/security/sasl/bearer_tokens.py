"""Bearer tokens: signed JWTs, checked by `joserfc` against the keys of their issuer.

Only asymmetric signatures count: with a published key as the secret of an HMAC anybody could sign, and `alg` "none" is
no signature at all. Times may be off by the clock skew. A token that names an audience is accepted only if that
audience is expected.

Unsecured tokens (`alg` "none") exist for tests of clients. Kafka accepts them if no key set is configured; this node
does so only if its operator asks for it by name.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448",
)  # fmt: skip
_LATEST_S: Final = 2**53 / 1000


class InvalidToken(Exception):
    """The token is refused. The message names the reason, and nothing of the token but claims that are not secret."""


class BearerToken(NamedTuple):
    subject: str
    expires_at_ms: int
    scope: frozenset[str]


class VerificationKey(NamedTuple):
    """A key for signatures, as one entry of a JWKS."""

    kid: str | None
    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a token has to say. An empty audience or issuer is not checked."""

    audience: frozenset[str] = frozenset()
    issuer: str = ""
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: frozenset[str] = frozenset()


KeysFor = Callable[[str | None], list[VerificationKey]]


def validate_signed(token: str, keys_for: KeysFor, expected: Expectations, now_s: float) -> BearerToken:
    """`keys_for` returns the keys with this key id, or all keys if the token names none."""
    from joserfc import jws
    from joserfc.errors import JoseError

    try:
        header = jws.extract_compact(token.encode()).headers()
    except (JoseError, ValueError, RecursionError) as error:
        raise InvalidToken("it is not a JWT") from error
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise InvalidToken("its signature algorithm is not one of the asymmetric ones")
    if kid is not None and not isinstance(kid, str):
        raise InvalidToken("its key id is not a string")
    keys = keys_for(kid)
    if not keys:
        raise InvalidToken("no published key has its key id")
    for candidate in keys:
        claims = _claims(token, candidate.key, [algorithm])
        if claims is not None:
            return _checked(claims, expected, now_s)
    raise InvalidToken("its signature is wrong")


def validate_unsecured(token: str, expected: Expectations, now_s: float) -> BearerToken:
    from joserfc.jwk import OctKey

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library warns of what the operator has asked for
        claims = _claims(token, OctKey.import_key(b"unused, there is no signature"), ["none"])
    if claims is None:
        raise InvalidToken("it is not an unsecured JWT")
    return _checked(claims, expected, now_s)


def parse_key_set(document: object) -> list[VerificationKey]:
    """The usable keys of a JWKS document; ValueError if it is none.

    Keys that this software does not understand, or that are not for signatures, are left out (RFC 7517, section 5).
    """
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("the document has no list of keys")
    found = []
    for entry in entries[:KEYS_MAX]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") not in _KEY_TYPES:
            continue
        try:
            key: Any = JWKRegistry.import_key(entry)
            kid = entry.get("kid")
            found.append(VerificationKey(kid if isinstance(kid, str) else None, key))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not found:
        raise ValueError("the document has no key that can be used for signatures")
    return found


KEYS_MAX: Final = 100
_KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})


def _claims(token: str, key: Key, algorithms: list[str]) -> Mapping[str, Any] | None:
    """The claims, if the signature fits the key."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        claims: Mapping[str, Any] = jwt.decode(token, key, algorithms=algorithms).claims
        return claims
    except (JoseError, ValueError, TypeError, RecursionError):
        return None


def _checked(claims: Mapping[str, Any], expected: Expectations, now_s: float) -> BearerToken:
    skew = expected.clock_skew_s
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if now_s - skew >= expires:
        raise InvalidToken("it has expired")
    if issued > now_s + skew:
        raise InvalidToken("it was issued in the future")
    if "nbf" in claims and _time(claims, "nbf") > now_s + skew:
        raise InvalidToken("it is not valid yet")
    _check_audience(claims.get("aud"), expected.audience)
    if expected.issuer and claims.get("iss") != expected.issuer:
        raise InvalidToken("its issuer is not the expected one")
    subject = claims.get(expected.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"it has no {expected.subject_claim} claim")
    scope = _scope(claims.get(expected.scope_claim))
    if not expected.required_scope <= scope:
        raise InvalidToken("it lacks the required scope")
    return BearerToken(subject.strip(), int(expires * 1000), scope)


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"it has no {name} claim that is a time")
    if not math.isfinite(value) or not 0 <= value <= _LATEST_S:
        raise InvalidToken(f"its {name} claim is not a time")
    return float(value)


def _check_audience(given: object, expected: frozenset[str]) -> None:
    if given is None and not expected:
        return
    audience = {given} if isinstance(given, str) else set(map(str, given)) if isinstance(given, list) else set()
    if not audience & expected:
        raise InvalidToken("its audience is not an expected one")


def _scope(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list):
        return frozenset(entry for entry in value if isinstance(entry, str))
    return frozenset()
