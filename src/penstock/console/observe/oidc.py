"""Asks an OpenID provider: what it offers, its keys, and the tokens for a code. All of it blocks."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from penstock.console.views import oidc
from penstock.console.views.oidc import Client, Identity, Pending, Provider, SignInFailed
from penstock.security.sasl.bearer_tokens import (
    Expectations,
    InvalidToken,
    VerificationKey,
    parse_key_set,
    validate_signed,
)

TIMEOUT_S = 10.0
_FRESH_S = 3600.0
_AGAIN_S = 10.0
_ANSWER_MAX = 1024 * 1024


class OpenIdProvider:
    def __init__(self, client: Client) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._known: tuple[float, Provider] | None = None
        self._keys: list[VerificationKey] = []
        self._keys_at = float("-inf")

    def provider(self) -> Provider:
        with self._lock:
            if self._known is None or time.monotonic() - self._known[0] > _FRESH_S:
                url = f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration"
                self._known = (time.monotonic(), oidc.parse_provider(self.client.issuer, _get(url)))
            return self._known[1]

    def identify(self, pending: Pending, code: str) -> Identity:
        """SignInFailed unless the provider says who it is."""
        provider = self.provider()
        form, headers = oidc.token_request(self.client, pending, code)
        identity, access, lasts_s = oidc.parse_tokens(_get(provider.token, form, headers))
        expected = Expectations(audience=frozenset({self.client.client_id}), issuer=self.client.issuer)
        try:
            found = validate_signed(identity, lambda kid: self._keys_for(provider, kid), expected, time.time())
        except InvalidToken as error:
            raise SignInFailed(f"the identity token is refused: {error}") from error
        oidc.check_nonce(identity, self.client, pending)
        return Identity(found.subject, access, oidc.expiry_of(access, time.time(), lasts_s))

    def _keys_for(self, provider: Provider, kid: str | None) -> list[VerificationKey]:
        """A key id that is not known may be a new one: then the keys are asked for again, but not all the time."""
        with self._lock:
            found = [each for each in self._keys if kid is None or each.kid == kid]
            age_s = time.monotonic() - self._keys_at
            if (not found and age_s > _AGAIN_S) or age_s > _FRESH_S:
                try:
                    self._keys = parse_key_set(_get(provider.keys))
                except ValueError as error:
                    raise SignInFailed(f"the provider's keys cannot be read: {error}") from error
                self._keys_at = time.monotonic()
                found = [each for each in self._keys if kid is None or each.kid == kid]
            return found


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A provider answers itself: a code or a secret is not sent on to another address."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def _get(url: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None) -> Any:
    data = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, data, {"accept": "application/json", **(headers or {})})
    host = urllib.parse.urlsplit(url).netloc
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(_ANSWER_MAX))
    except urllib.error.HTTPError as error:
        raise SignInFailed(f"the provider {host} answered {error.code}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise SignInFailed(f"the provider {host} does not answer: {error}") from error
