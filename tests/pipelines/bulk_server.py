"""The `_bulk` contract of Elasticsearch, as its reference has it, and no more of Elasticsearch than that: it takes
index actions, keeps documents by their ids, refuses those whose `number` is a text, and can simulate a full disk."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MEDIA = "application/json"


class BulkServer:
    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.documents: dict[str, dict[str, Any]] = {}
        self.busy: Counter[str] = Counter()
        """How often the document of an id is still to be put off with 429."""
        self.status = 200
        """Of whole requests."""
        self.authorization: set[str | None] = set()
        self.requests = 0

    def bulk(self, body: bytes) -> dict[str, Any]:
        assert body.endswith(b"\n"), "a bulk ends with a new line"
        lines = body.decode().splitlines()
        items = [
            self._index(json.loads(action), json.loads(text))
            for action, text in zip(lines[::2], lines[1::2], strict=True)
        ]
        return {"took": 1, "errors": any(item["index"]["status"] >= 300 for item in items), "items": items}

    def _index(self, action: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
        assert list(action) == ["index"], action
        name = action["index"]["_id"]
        if self.busy[name] > 0:
            self.busy[name] -= 1
            full = {"type": "es_rejected_execution_exception", "reason": "rejected execution: the queue is full"}
            return {"index": {"_id": name, "status": 429, "error": full}}
        if isinstance(document.get("number"), str):
            cause = {"type": "number_format_exception", "reason": f'For input string: "{document["number"]}"'}
            error = {
                "type": "document_parsing_exception",
                "reason": "failed to parse field [number]",
                "caused_by": cause,
            }
            return {"index": {"_id": name, "status": 400, "error": error}}
        created = name not in self.documents
        self.documents[name] = document
        return {
            "index": {"_id": name, "status": 201 if created else 200, "result": "created" if created else "updated"}
        }


@contextmanager
def bulk_server() -> Iterator[BulkServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:  # the library's name
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Suppress the log: it is not read."""

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                served.requests += 1
                served.authorization.add(self.headers.get("Authorization"))
                assert self.path.endswith("/_bulk"), self.path
                made = served.bulk(body) if served.status == 200 else {"error": "not now", "status": served.status}
            text = json.dumps(made).encode()
            self.send_response(served.status)
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Type", _MEDIA)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    lock = threading.Lock()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = BulkServer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
