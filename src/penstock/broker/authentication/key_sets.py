"""The published keys of a token issuer (JWKS), from an https or file URL.

Everything here runs in the threads that check tokens. The keys are kept and read again after the refresh time, or when
a token names a key that is not among them: issuers publish new keys before they use them. Attempts are bounded: at most
one at a time, after a failure only after a pause that doubles, and for unknown key ids at most one in ten seconds, so
that tokens with invented key ids do not make this node a source of load. Keys that were read once stay in use while
their issuer cannot be reached, and while another thread waits for it: an issuer that does not answer must not stop the
logins of those whose keys are known, nor take all threads that check credentials.
"""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from penstock.security.sasl.bearer_tokens import InvalidToken, VerificationKey, parse_key_set

logger = logging.getLogger("penstock.authentication")

TIMEOUT_S: Final = 10.0
DOCUMENT_BYTES_MAX: Final = 1 << 20
UNKNOWN_KEY_PAUSE_MS: Final = 10_000
BUSY_S: Final = 1.0  # how long to wait while another thread asks the issuer, for a key that is not known


class KeySet:
    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int],
        refresh_ms: int,
        retry_ms: int,
        retry_max_ms: int,
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        """`now_ms`: a clock that never goes back. `read`: fetches a URL."""
        self._url = url
        self._now_ms = now_ms
        self._refresh_ms = refresh_ms
        self._retry_ms = retry_ms
        self._retry_max_ms = retry_max_ms
        self._read = read or read_url
        self._lock = threading.Lock()
        self._keys: list[VerificationKey] = []
        self._read_at_ms: int | None = None  # the last success
        self._asked_at_ms: int | None = None  # the last attempt
        self._pause_ms = 0  # after failures

    def keys_for(self, kid: str | None) -> list[VerificationKey]:
        """The keys with this id; all keys for None. May wait for the network."""
        found = self._matching(kid)
        if not self._lock.acquire(timeout=0 if found else BUSY_S):
            return self._known(found)
        try:
            if self._is_stale():
                self._refresh()
            found = self._matching(kid)
            if not found and kid is not None and self._may_ask(UNKNOWN_KEY_PAUSE_MS):
                self._refresh()
                found = self._matching(kid)
        finally:
            self._lock.release()
        return self._known(found)

    def _known(self, found: list[VerificationKey]) -> list[VerificationKey]:
        if not self._keys:
            raise InvalidToken("the keys of its issuer are not available")
        return found

    def _matching(self, kid: str | None) -> list[VerificationKey]:
        return self._keys if kid is None else [key for key in self._keys if key.kid == kid]

    def _is_stale(self) -> bool:
        is_old = self._read_at_ms is None or self._now_ms() - self._read_at_ms >= self._refresh_ms
        return is_old and self._may_ask(self._pause_ms)

    def _may_ask(self, pause_ms: int) -> bool:
        return self._asked_at_ms is None or self._now_ms() - self._asked_at_ms >= max(pause_ms, self._pause_ms)

    def _refresh(self) -> None:
        self._asked_at_ms = self._now_ms()
        try:
            self._keys = parse_key_set(json.loads(self._read(self._url)))
        except (OSError, ValueError, RecursionError) as error:
            self._pause_ms = min(max(self._retry_ms, 2 * self._pause_ms), self._retry_max_ms)
            logger.warning("the keys at %s cannot be read: %s", _without_secrets(self._url), _reason(error))
        else:
            self._read_at_ms = self._now_ms()
            self._pause_ms = 0


def read_url(url: str) -> bytes:
    """Fetch an https or file URL. OSError if it cannot be read, ValueError if it is too large."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        with open(urllib.request.url2pathname(parts.path), "rb") as file:
            data = file.read(DOCUMENT_BYTES_MAX + 1)
    else:
        # The default handlers would follow a redirection to another scheme.
        with opened(urllib.request.build_opener(NoRedirection), url) as response:
            data = response.read(DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
    return data


def opened(opener: urllib.request.OpenerDirector, what: str | urllib.request.Request) -> Any:
    """The response, for the caller to close; HTTPError, which is closed already, if the status is an error."""
    try:
        return opener.open(what, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        raise


class NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _without_secrets(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"status {error.code}"
    if isinstance(error, RecursionError):
        return "the document is nested too deeply"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "the document is not JSON"
    return str(error)
