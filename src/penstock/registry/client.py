"""A small client of any registry with Confluent's REST API, for the command line. Uses the standard library only."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from penstock.client.errors import BadResponse, BadSetting, NotAuthorized, Unreachable

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 60.0


class Refused(Exception):
    """An error of the registry, with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


class RegistryClient:
    def __init__(self, url: str, *, authority: str | None = None) -> None:
        """`url` may contain a user and a password; `authority` is a file of certificates to trust."""
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSetting(f"{_without_password(parts)} is not the URL of a registry, such as http://127.0.0.1:8081")
        self.url = _without_password(parts)
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        if parts.username is not None:
            user, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=authority)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=_TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port or 8081, timeout=_TIMEOUT_S)

    def close(self) -> None:
        self._connection.close()

    def request(self, method: str, *path: str, body: object = None, query: Mapping[str, object] | None = None) -> Any:
        """The JSON answer; Refused if the registry says no. The parts of the path are encoded."""
        target = self._base + "/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        if query:
            target += "?" + urllib.parse.urlencode(query)
        headers = dict(self._headers)
        content = None
        if body is not None:
            headers["Content-Type"] = _CONTENT_TYPE
            content = json.dumps(body).encode()
        try:
            self._connection.request(method, target, body=content, headers=headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Unreachable(f"the registry {self.url} does not answer: {error}") from error
        return self._answer(response.status, text)

    def _answer(self, status: int, text: bytes) -> Any:
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            raise BadResponse(
                f"{self.url} is not a registry: it answers with status {status}, and not in JSON"
            ) from None
        if status == http.client.UNAUTHORIZED:
            raise NotAuthorized(f"{self.url} needs the name and password of a user: http://USER:PASSWORD@HOST:PORT")
        if status >= 400:
            known = answer if isinstance(answer, dict) else {}
            raise Refused(int(known.get("error_code", status)), str(known.get("message", "no message")))
        return answer


def _without_password(parts: urllib.parse.SplitResult) -> str:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
