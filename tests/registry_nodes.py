"""Nodes of a registry as processes, and plain HTTP to ask them."""

from __future__ import annotations

import http.client
import json
import os
import urllib.parse
from typing import Any, NamedTuple

from penstock.local.ports import free_ports
from penstock.local.web import LocalRegistry

SESSION_S = 2.0


class Reply(NamedTuple):
    status: int
    content: Any

    @property
    def code(self) -> int:
        return int(self.content["error_code"])


class Nodes:
    def __init__(self, bootstrap: str, directory: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._directory = directory
        self._started: list[LocalRegistry] = []

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._started:
            node.begin_stop()
        for node in self._started:
            node.stop()

    def start(self, *arguments: str, ready: bool = True) -> LocalRegistry:
        number = len(self._started) + 1
        (port,) = free_ports(1, "127.0.0.1")
        group = f"registry-of-{self.topic}"
        node = LocalRegistry(
            os.path.join(self._directory, f"registry-{number}"),
            bootstrap=self.bootstrap,
            host="127.0.0.1",
            port=port,
            number=number,
            arguments=["--topic", self.topic, "--group", group, "--session-timeout", str(SESSION_S), *arguments],
        )
        self._started.append(node)
        node.start()
        if ready:
            node.wait_ready(60.0)
        return node


def ask(
    url: str, method: str, path: str, body: object = None, headers: dict[str, str] | None = None, timeout: float = 60.0
) -> Reply:
    """One request on a connection of its own. `body` is sent as JSON unless it is bytes."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, body=content, headers={"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    try:
        return Reply(response.status, json.loads(text) if text else None)
    except ValueError:
        return Reply(response.status, text.decode())


def record_schema(name: str, *fields: str, optional: tuple[str, ...] = ()) -> str:
    """An Avro record with fields of type int; those in `optional` have a default."""
    described: list[dict[str, Any]] = [{"name": field, "type": "int"} for field in fields]
    described += [{"name": field, "type": "int", "default": 0} for field in optional]
    return json.dumps({"type": "record", "name": name, "fields": described})
