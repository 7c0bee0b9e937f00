"""A REST catalog of Iceberg's, as far as sinks ask for it: the tables are those of a real SQL catalog behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any


class RestCatalog:
    def __init__(self, address: str, tables: Any) -> None:
        self.address = address
        self.token = "token-of-the-catalog"
        self.status = 200
        """Of every request; other than 200: it is refused."""
        self._tables = tables

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError

        try:
            return 200, self._answer(method, path.partition("?")[0].strip("/").split("/"), body)
        except NoSuchTableError as error:
            return 404, _error(404, "NoSuchTableException", str(error))
        except NamespaceAlreadyExistsError as error:
            return 409, _error(409, "AlreadyExistsException", str(error))
        except CommitFailedException as error:
            return 409, _error(409, "CommitFailedException", str(error))

    def _answer(self, method: str, path: list[str], body: bytes) -> str:
        from pyiceberg.catalog.rest import CreateTableRequest
        from pyiceberg.table import CommitTableRequest

        match [method, *path]:
            case ["GET", "v1", "config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case ["POST", "v1", "namespaces"]:
                self._tables.create_namespace(tuple(json.loads(body)["namespace"]))
                return body.decode()
            case ["POST", "v1", "namespaces", namespace, "tables"]:
                left_out = {"location": None, "partition-spec": None, "write-order": None}
                asked = CreateTableRequest.model_validate({**left_out, **json.loads(body)})
                assert asked.stage_create
                made = self._tables.create_table_transaction((namespace, asked.name), asked.table_schema)
                return f'{{"metadata": {made.table_metadata.model_dump_json()}, "config": {{}}}}'
            case ["POST", "v1", "namespaces", namespace, "tables", name]:
                wanted = CommitTableRequest.model_validate_json(body)
                table = SimpleNamespace(name=lambda: (namespace, name))
                return str(self._tables.commit_table(table, wanted.requirements, wanted.updates).model_dump_json())
            case ["GET", "v1", "namespaces", namespace, "tables", name]:
                found = self._tables.load_table((namespace, name))
                location = json.dumps(found.metadata_location)
                return f'{{"metadata-location": {location}, "metadata": {found.metadata.model_dump_json()}}}'
        raise AssertionError(f"{method} {path}")


def _error(code: int, kind: str, message: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}})


@contextmanager
def rest_catalog(options: Mapping[str, str]) -> Iterator[RestCatalog]:
    """`options`: of the SQL catalog."""
    from pyiceberg.catalog import load_catalog

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the library's name
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Suppress the log: it is not read."""

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {served.token}":
                status, text = 401, _error(401, "NotAuthorizedException", "who is it?")
            elif served.status != 200:
                status, text = served.status, _error(served.status, "ServiceUnavailableException", "not now")
            else:
                with lock:
                    status, text = served.answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    lock = threading.Lock()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = RestCatalog(f"http://127.0.0.1:{server.server_address[1]}", load_catalog(None, **options))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
