"""The node's own bearer tokens: from a file, or from the issuer by the client-credentials grant (RFC 6749, 4.4).

A token is fetched for each login and each renewal of one, in the thread that takes the step of the login. A file is
read each time, so that whatever writes it renews the token. A token of an issuer is used again until it is near its
end, because a node opens many connections. Neither tokens nor the client's secret appear in messages.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Final

from penstock.broker.authentication.key_sets import NoRedirection, opened, read_url
from penstock.security.sasl.exchange import AuthenticationFailed
from penstock.settings.sasl import BearerLogin

ANSWER_BYTES_MAX: Final = 1 << 20
USED_FOR: Final = 0.8  # of its lifetime


def token_source(login: BearerLogin, now_ms: Callable[[], int]) -> Callable[[], str]:
    """What returns a token; AuthenticationFailed if there is none. `now_ms`: a clock that never goes back."""
    if login.url.startswith("file:"):
        return lambda: _read_file(login.url)
    return IssuedTokens(login, now_ms).token


def _read_file(url: str) -> str:
    try:
        return read_url(url).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise AuthenticationFailed(f"the node's own token cannot be read from {url}: {_reason(error)}") from None


class IssuedTokens:
    def __init__(
        self,
        login: BearerLogin,
        now_ms: Callable[[], int],
        ask: Callable[[urllib.request.Request], bytes] | None = None,
    ) -> None:
        """`ask`: sends a request and returns the answer's body."""
        self._login = login
        self._now_ms = now_ms
        self._ask = ask or _ask
        self._lock = threading.Lock()
        self._token = ""
        self._used_until_ms = 0

    def token(self) -> str:
        with self._lock:
            if not self._token or self._now_ms() >= self._used_until_ms:
                self._fetch()
            return self._token

    def _fetch(self) -> None:
        asked_at_ms = self._now_ms()
        try:
            answer = json.loads(self._ask(self._request()))
            token, lifetime_s = answer["access_token"], answer.get("expires_in", 0)
            if not isinstance(token, str) or not isinstance(lifetime_s, int | float):
                raise ValueError("the answer has no token")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise AuthenticationFailed(
                f"the node gets no token from {self._login.url}: {_reason(error)} (sasl.oauthbearer.token.endpoint.url)"
            ) from None
        self._token = token
        self._used_until_ms = asked_at_ms + int(USED_FOR * 1000 * lifetime_s)

    def _request(self) -> urllib.request.Request:
        login = self._login
        form = {"grant_type": "client_credentials"}
        if login.scope:
            form["scope"] = login.scope
        credentials = ":".join(urllib.parse.quote_plus(each) for each in (login.client_id, login.client_secret))
        return urllib.request.Request(
            login.url,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )


def _ask(request: urllib.request.Request) -> bytes:
    # Without redirections: they would carry the secret to another host.
    with opened(urllib.request.build_opener(NoRedirection), request) as response:
        data: bytes = response.read(ANSWER_BYTES_MAX + 1)
    if len(data) > ANSWER_BYTES_MAX:
        raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return data


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"status {error.code}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "it is not ASCII or JSON"
    return "the answer has no access_token"
