"""Sign-in by OpenID Connect, the pure part: the code flow with PKCE.

    begin        a state, a nonce and a verifier, which only this session knows; the browser goes to the provider
    returned     the browser comes back with a code, and must bring the state of this session, once and soon
    identified   the identity token must have the nonce, be for us, and not for another client (`azp`)

Signatures, issuer, audience and times are checked where the keys are (`observe.oidc`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

RETURN_S = 600.0
"""How long a person has to sign in at the provider."""
TOKEN_MAX = 64 * 1024


class SignInFailed(Exception):
    """Nobody is signed in; the message says why, and contains no secret."""


@dataclass(frozen=True, slots=True)
class Client:
    """What the provider knows this console by."""

    issuer: str
    client_id: str
    scope: str = "openid"
    secret: str | None = None

    def __repr__(self) -> str:
        return f"Client({self.issuer!r}, {self.client_id!r})"


@dataclass(frozen=True, slots=True)
class Provider:
    authorization: str
    token: str
    keys: str


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in that has begun, in the session of a browser."""

    state: str
    nonce: str
    verifier: str
    began_s: float
    returns_to: str
    """The address of this console that the provider sends the browser to."""

    def __repr__(self) -> str:
        return "Pending()"


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    access_token: str
    lasts_s: float
    """For how long the token is valid."""

    def __repr__(self) -> str:
        return f"Identity({self.user!r})"


def parse_provider(issuer: str, document: Any) -> Provider:
    """From the provider's description of itself."""
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise SignInFailed(f"the provider does not call itself {issuer}")
    found = {name: document.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
    for name, url in found.items():
        if not isinstance(url, str) or not is_safe(url):
            raise SignInFailed(f"the provider's {name} is not an https address")
    return Provider(str(found["authorization_endpoint"]), str(found["token_endpoint"]), str(found["jwks_uri"]))


def is_safe(url: str) -> bool:
    """https; or http on this machine, for tests."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1"))


def begin(random: Callable[[], str], now_s: float, returns_to: str) -> Pending:
    """`random` returns a new unguessable text each time."""
    return Pending(random(), random(), random(), now_s, returns_to)


def authorization_address(provider: Provider, client: Client, pending: Pending) -> str:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
    given = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": pending.returns_to,
        "scope": client.scope,
        "state": pending.state,
        "nonce": pending.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    return f"{provider.authorization}{'&' if '?' in provider.authorization else '?'}{urlencode(given)}"


def returned(pending: Pending | None, given: Mapping[str, str], now_s: float) -> str:
    """The code that the browser brought back."""
    if pending is None or not hmac.compare_digest(given.get("state", "").encode(), pending.state.encode()):
        raise SignInFailed("this sign-in was not begun here: try again")
    if now_s - pending.began_s > RETURN_S:
        raise SignInFailed("this sign-in took too long: try again")
    if "error" in given:
        raise SignInFailed(f"the provider refused: {given.get('error_description') or given['error']}"[:300])
    if not given.get("code"):
        raise SignInFailed("the provider sent no code")
    return given["code"]


def token_request(client: Client, pending: Pending, code: str) -> tuple[dict[str, str], dict[str, str]]:
    """The form, and the headers."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": pending.returns_to,
        "client_id": client.client_id,
        "code_verifier": pending.verifier,
    }
    if client.secret is None:
        return form, {}
    pair = urlencode({client.client_id: client.secret}).replace("=", ":", 1)
    return form, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def parse_tokens(document: Any) -> tuple[str, str, float | None]:
    """Identity token, access token, and the seconds for which the latter is valid, if that is said."""
    if not isinstance(document, dict) or str(document.get("token_type", "")).lower() != "bearer":
        raise SignInFailed("the provider gave no bearer token")
    tokens = [document.get(name) for name in ("id_token", "access_token")]
    identity, access = (token if isinstance(token, str) and len(token) <= TOKEN_MAX else "" for token in tokens)
    if not identity or not access:
        raise SignInFailed("the provider gave no identity and access token: does the scope contain openid?")
    lasts = document.get("expires_in")
    is_number = isinstance(lasts, int | float) and not isinstance(lasts, bool) and lasts > 0
    return identity, access, float(lasts) if is_number else None  # type: ignore[arg-type]  # it is a number


def check_nonce(identity_token: str, client: Client, pending: Pending) -> None:
    """`identity_token` has been verified: only what it says is looked at here."""
    claims = payload_of(identity_token)
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), pending.nonce.encode()):
        raise SignInFailed("the identity token is of another sign-in")
    audience = claims.get("aud")
    if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != client.client_id:
        raise SignInFailed("the identity token is for another client")
    if "azp" in claims and claims["azp"] != client.client_id:
        raise SignInFailed("the identity token is for another client")


def expiry_of(access_token: str, now_s: float, lasts_s: float | None) -> float:
    """The seconds for which the access token is valid: what the provider says, and what is in it, whichever is less."""
    expires = payload_of(access_token).get("exp")
    if isinstance(expires, int | float) and not isinstance(expires, bool):
        lasts_s = min(expires - now_s, float("inf") if lasts_s is None else lasts_s)
    if lasts_s is None or lasts_s <= 0:
        raise SignInFailed("the access token has expired, or does not say when it does")
    return lasts_s


def payload_of(token: str) -> dict[str, Any]:
    """What a JWT says, without a look at its signature; empty if it is none."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
