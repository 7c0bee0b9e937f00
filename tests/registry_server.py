"""A schema registry in a thread, for tests of its clients: what Confluent's clients ask, and faults on demand.

It checks no compatibility and parses no schema: the real server has tests of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class FakeRegistry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.schemas: list[dict[str, Any]] = []  # the id is the index + 1
        self.subjects: dict[str, list[int]] = {}  # ids by version - 1
        self.requests: list[tuple[str, str]] = []
        self.authorizations: set[str | None] = set()
        self.failures: list[int] = []  # statuses of the next answers
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = [unquote(each) for each in path.strip("/").split("/")]
        if method == "POST" and parts[0] == "subjects":
            return self._place(parts[1], body, register=len(parts) == 3)
        if parts[:2] == ["schemas", "ids"]:
            return self._by_id(int(parts[2]), parts[3:])
        if parts[:2] == ["schemas", "guids"]:
            for number, each in enumerate(self.schemas, 1):
                if each["guid"] == parts[2]:
                    return 200, {**each, "id": number}
        if parts[0] == "subjects" and len(parts) == 4:
            versions = self.subjects.get(parts[1], [])
            version = len(versions) if parts[3] in ("latest", "-1") else int(parts[3])
            if 0 < version <= len(versions):
                return 200, self._version(parts[1], version)
            return 404, {"error_code": 40401, "message": f"Subject '{parts[1]}' not found."}
        if parts == ["subjects"]:
            return 200, sorted(self.subjects)
        return 404, {"error_code": 40403, "message": "not found"}

    def _place(self, subject: str, body: Any, *, register: bool) -> tuple[int, Any]:
        schema = {
            "schema": body["schema"],
            "schemaType": body.get("schemaType") or "AVRO",
            "references": body.get("references") or [],
        }
        known = [{name: each[name] for name in schema} for each in self.schemas]
        versions = self.subjects.get(subject, [])
        if schema in known and (known.index(schema) + 1) in versions:
            return 200, self._version(subject, versions.index(known.index(schema) + 1) + 1)
        if not register:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if schema not in known:
            guid = str(uuid.UUID(bytes=hashlib.md5(json.dumps(schema).encode()).digest()))
            self.schemas.append({**schema, "guid": guid})
            known.append(schema)
        self.subjects.setdefault(subject, []).append(known.index(schema) + 1)
        return 200, self._version(subject, len(self.subjects[subject]))

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        number = self.subjects[subject][version - 1]
        return {**self.schemas[number - 1], "id": number, "subject": subject, "version": version}

    def _by_id(self, number: int, rest: list[str]) -> tuple[int, Any]:
        if not 0 < number <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        places = [(name, ids.index(number) + 1) for name, ids in self.subjects.items() if number in ids]
        if rest == ["versions"]:
            return 200, [{"subject": name, "version": version} for name, version in places]
        if rest == ["subjects"]:
            return 200, [name for name, _ in places]
        return 200, self.schemas[number - 1]


@contextmanager
def fake_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = urlsplit(self.path).path
            with registry.lock:
                registry.requests.append((self.command, self.path))
                registry.authorizations.add(self.headers.get("Authorization"))
                if registry.failures:
                    status, answer = registry.failures.pop(0), {"error_code": 50001, "message": "later"}
                else:
                    status, answer = registry.answer(self.command, re.sub("//+", "/", path), body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    registry.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
