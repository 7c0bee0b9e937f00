"""Requests to a schema registry: HTTP with connections that are kept, several addresses, and retries.

Every request of a registry can be repeated: the same registration gives the same id. So answers that a later attempt
may improve (408, 429 and 5xx of proxies and servers that start) and broken connections are tried again, at the next
address, with growing pauses. Threads share the connections; each uses its own while it waits for an answer.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
ATTEMPTS: Final = 4
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_OPTIONS: Final = (
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)


class RegistryError(Exception):
    """The registry refused a request, or none of its addresses answered.

    `status`: of HTTP, 0 if there was no answer; `code`: the registry's own, such as 40403 for an unknown schema.
    """

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryHttp:
    def __init__(
        self,
        urls: str | Sequence[str],
        options: Mapping[str, str] | None = None,
        timeout: float = 10,
        attempts: int = ATTEMPTS,
    ) -> None:
        """`urls`: one, several, or several in one text with commas between them. `options`: by Confluent's names."""
        given = dict(options or {})
        unknown = [name for name in given if name not in _OPTIONS]
        if unknown:
            raise ValueError(f"a registry has no option {', '.join(unknown)}; there are {', '.join(_OPTIONS)}")
        texts = urls.split(",") if isinstance(urls, str) else urls
        self._addresses = [_Address(each.strip(), given) for each in texts if each.strip()]
        if not self._addresses:
            raise ValueError("a registry needs an address, such as http://127.0.0.1:8081")
        self._timeout = timeout
        self._attempts = attempts
        self._context = _tls_context(given) if any(each.secure for each in self._addresses) else None
        self._lock = threading.Lock()
        self._idle: list[tuple[_Address, http.client.HTTPConnection]] = []
        self._process = os.getpid()

    def __repr__(self) -> str:
        return ",".join(each.shown for each in self._addresses)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_idle"):  # the constructor did not fail
            self.close()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The parsed answer; RegistryError if it is an error, or if there is none."""
        data = None if body is None else json.dumps(body).encode()
        failure = RegistryError(f"schema registry {self!r}: no answer")
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(random.uniform(0, min(_PAUSE_S * 2**attempt, _PAUSE_MAX_S)))
            address = self._addresses[0]
            try:
                status, answer = self._exchange(address, method, path, data)
            except (OSError, http.client.HTTPException) as error:
                failure = RegistryError(f"schema registry {address.shown}: {_reason(error)}")
            else:
                if status < 400:
                    return _parsed(answer, address)
                failure = _refusal(status, answer, address)
                if status not in _RETRIED:
                    raise failure
            self._prefer_next(address)
        raise failure

    def _prefer_next(self, failed: _Address) -> None:
        with self._lock:
            if self._addresses[0] is failed:
                self._addresses = [*self._addresses[1:], failed]

    def _exchange(self, address: _Address, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        connection = self._taken(address)
        if connection is not None:
            try:
                return self._on(connection, address, method, path, data)
            except (http.client.HTTPException, ConnectionError):
                pass  # the server closed it while it was idle: that is no failure of this request
        return self._on(self._opened(address), address, method, path, data)

    def _on(
        self, connection: http.client.HTTPConnection, address: _Address, method: str, path: str, data: bytes | None
    ) -> tuple[int, bytes]:
        headers = {"Accept": CONTENT_TYPE, **address.headers}
        if data is not None:
            headers["Content-Type"] = CONTENT_TYPE
        try:
            connection.request(method, address.path + path, body=data, headers=headers)
            response = connection.getresponse()
            answer = response.read(_ANSWER_BYTES_MAX + 1)
            if len(answer) > _ANSWER_BYTES_MAX:
                raise http.client.HTTPException(f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append((address, connection))
        return response.status, answer

    def _taken(self, address: _Address) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():
                self._idle, self._process = [], os.getpid()  # they belong to the parent of a fork
            for index, (owner, connection) in enumerate(self._idle):
                if owner is address:
                    del self._idle[index]
                    return connection
        return None

    def _opened(self, address: _Address) -> http.client.HTTPConnection:
        if address.secure:
            return http.client.HTTPSConnection(address.host, address.port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(address.host, address.port, timeout=self._timeout)


class _Address:
    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{_without_user(url)!r} is not an address such as http://127.0.0.1:8081")
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.path = parts.path.rstrip("/")
        self.shown = f"{parts.scheme}://{_without_user(parts.netloc)}{self.path}"
        user = options.get("basic.auth.user.info", "")
        if parts.username is not None:
            user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        self.headers: dict[str, str] = {}
        if user:
            self.headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        elif "bearer.auth.token" in options:
            self.headers["Authorization"] = f"Bearer {options['bearer.auth.token']}"


def _without_user(text: str) -> str:
    return text.rpartition("@")[2]


def _tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
    certificate = options.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(certificate, options.get("ssl.key.location"), options.get("ssl.key.password"))
    return context


def _parsed(answer: bytes, address: _Address) -> Any:
    try:
        return json.loads(answer) if answer else None
    except ValueError:
        raise RegistryError(f"schema registry {address.shown}: the answer is not JSON: {answer[:80]!r}") from None


def _refusal(status: int, answer: bytes, address: _Address) -> RegistryError:
    try:
        parsed = json.loads(answer)
        message, code = str(parsed["message"]), int(parsed["error_code"])
    except (ValueError, KeyError, TypeError):
        message, code = answer[:200].decode(errors="replace") or http.client.responses.get(status, ""), status
    return RegistryError(f"schema registry {address.shown}: {message} ({code})", status, code)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
