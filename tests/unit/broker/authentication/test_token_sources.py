"""The node's own bearer tokens, from a file and from an issuer that is a real https server."""

from __future__ import annotations

import base64
import datetime
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.broker.authentication.token_sources import token_source
from penstock.security.sasl.exchange import AuthenticationFailed
from penstock.settings.sasl import BearerLogin
from penstock.tls.authority import Authority

SECRET = "shared/secret"


class Issuer:
    """Answers with `answer`, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        self.answer: bytes = b""
        self.url = ""

    def give(self, token: str, expires_in: object = 100) -> None:
        self.status, self.answer = 200, json.dumps({"access_token": token, "expires_in": expires_in}).encode()


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("Test CA", now)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    (tmp_path / "issuer.pem").write_text(authority.issue("issuer", ["localhost"], now).pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            issuer.asked.append((self.headers["Authorization"], body))
            self.send_response(issuer.status)
            if issuer.status == 302:
                self.send_header("Location", issuer.url + "/elsewhere")
            self.end_headers()
            self.wfile.write(issuer.answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "issuer.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        issuer.url = f"https://localhost:{server.server_address[1]}/token"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()


def test_a_token_is_asked_for_by_client_credentials_and_used_until_it_is_near_its_end(issuer: Issuer) -> None:
    now_ms = 1_000
    issuer.give("one.two.three")
    token = token_source(BearerLogin(issuer.url, "node", SECRET, "a b"), lambda: now_ms)
    assert token() == token() == "one.two.three"
    ((authorization, body),) = issuer.asked
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"node:shared%2Fsecret"
    assert body == "grant_type=client_credentials&scope=a+b"
    issuer.give("four.five.six")
    now_ms += 79_000
    assert token() == "one.two.three"
    now_ms += 1_000
    assert token() == "four.five.six"


def test_a_token_of_unknown_lifetime_is_used_once(issuer: Issuer) -> None:
    issuer.status, issuer.answer = 200, b'{"access_token": "t"}'
    token = token_source(BearerLogin(issuer.url, "node", SECRET, ""), lambda: 5)
    assert token() == token() == "t"
    assert [body for _, body in issuer.asked] == ["grant_type=client_credentials"] * 2


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (401, b'{"error": "invalid_client"}', "status 401"),
        (302, b"", "status 302"),
        (200, b"<html>", "it is not ASCII or JSON"),
        (200, b"[1]", "has no access_token"),
        (200, b"{}", "has no access_token"),
        (200, b'{"access_token": 7}', "has no access_token"),
        (200, b'{"access_token": "t", "expires_in": "soon"}', "has no access_token"),
        (200, b"[" * 100_000, "has no access_token"),
        (200, b'"' + b"x" * (1 << 20) + b'"', "has no access_token"),
    ],
)
def test_an_issuer_that_gives_no_token(issuer: Issuer, status: int, answer: bytes, reason: str) -> None:
    issuer.status, issuer.answer = status, answer
    token = token_source(BearerLogin(issuer.url, "node", SECRET, ""), lambda: 5)
    with pytest.raises(AuthenticationFailed, match=reason) as caught:
        token()
    assert SECRET not in str(caught.value)
    assert len(issuer.asked) == 1  # the redirection was not followed
    issuer.give("later")
    assert token() == "later"


def test_an_issuer_that_is_not_trusted_or_away(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(AuthenticationFailed, match="certificate verify failed"):
        token_source(BearerLogin(issuer.url, "node", SECRET, ""), lambda: 5)()
    with pytest.raises(AuthenticationFailed, match="refused"):
        token_source(BearerLogin("https://localhost:1/token", "node", SECRET, ""), lambda: 5)()
    assert not issuer.asked


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = token_source(BearerLogin(path.as_uri(), "", "", ""), lambda: 5)
    with pytest.raises(AuthenticationFailed, match="No such file"):
        token()
    for text in ("one", "two"):
        path.write_text(text + "\n")
        assert token() == text
    path.write_text("ünreadable")
    with pytest.raises(AuthenticationFailed, match="it is not ASCII"):
        token()
