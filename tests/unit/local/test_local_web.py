"""Web servers beside local brokers: their commands, and when they count as ready."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.ports import free_ports
from penstock.local.web import LocalConsole, LocalRegistry, LocalWebServer


class Answers(http.server.BaseHTTPRequestHandler):
    """Has one page, as a server that is not ready answers other paths with an error."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/static/console.css" else 503)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Prints nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def console(directory: Path, port: int, registry: str | None = None) -> LocalConsole:
    return LocalConsole(
        str(directory), bootstrap="h:1@client.properties", host="127.0.0.1", port=port, registry=registry
    )


def test_a_server_is_ready_when_it_answers_its_probe(tmp_path: Path, port: int) -> None:
    assert console(tmp_path, port).is_ready()
    assert not LocalRegistry(str(tmp_path), bootstrap="h:1", host="127.0.0.1", port=port).is_ready(), "it answers 503"
    assert not console(tmp_path, free_ports(1)[0]).is_ready(), "nothing listens"


def test_the_console_knows_the_brokers_the_registry_and_its_files(tmp_path: Path) -> None:
    command = console(tmp_path, 8080, "http://127.0.0.1:8081").command()
    options = dict(zip(command[4::2], command[5::2], strict=True))
    assert options == {
        "-b": "h:1@client.properties",
        "--listen": "127.0.0.1:8080",
        "--history": str(tmp_path / "history.sqlite"),
        "--audit-log": str(tmp_path / "audit.log"),
        "--registry": "http://127.0.0.1:8081",
    }
    assert "--registry" not in console(tmp_path, 8080).command()


def test_web_servers_stop_before_brokers_do(tmp_path: Path) -> None:
    servers: list[LocalWebServer] = [
        console(tmp_path, 1),
        LocalRegistry(str(tmp_path), bootstrap="h:1", host="127.0.0.1", port=2, number=2),
    ]
    assert [each.stops_after for each in servers] == [0, 0]
    assert [each.title for each in servers] == ["console", "registry 2"]
    assert servers[1].url == "http://127.0.0.1:2"
