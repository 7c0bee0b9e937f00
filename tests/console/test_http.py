"""Requests that no browser of ours would send: what the console refuses."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from urllib.parse import urlencode, urlsplit

import pytest

from console_process import RunningConsole

pytest.importorskip("starlette", reason="the extra `console` is not installed")


def ask(
    console: RunningConsole, method: str, path: str, headers: dict[str, str] | None = None, body: str | None = None
) -> tuple[int, dict[str, str], str]:
    where = urlsplit(console.address)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def test_pages_may_load_nothing_from_elsewhere(console: RunningConsole) -> None:
    status, headers, text = ask(console, "GET", "/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", text)
    for file in ("console.css", "console.js"):
        status, headers, text = ask(console, "GET", f"/static/{file}")
        assert status == 200
        assert "http://" not in text.replace("http://www.w3.org", "")
    assert ask(console, "GET", "/static/..%2fsettings.py")[0] == 404
    assert ask(console, "GET", "/static/nothing.js")[0] == 404


def test_another_sites_name_is_refused(console: RunningConsole) -> None:
    assert ask(console, "GET", "/", {"host": "evil.example:8080"})[0] == 421
    assert ask(console, "GET", "/", {"host": "localhost:1"})[0] == 200


def test_a_form_of_another_site_changes_nothing(console: RunningConsole) -> None:
    _, headers, text = ask(console, "GET", "/topics")
    cookie = headers["set-cookie"].partition(";")[0]
    token = re.search(r'name="csrf" value="([^"]+)"', text)
    assert token is not None
    form = {"name": "made-by-nobody", "back": "//evil.example/"}
    kind = {"content-type": "application/x-www-form-urlencoded", "cookie": cookie}
    assert ask(console, "POST", "/do/topic.create", kind, urlencode(form))[0] == 403
    assert ask(console, "POST", "/do/topic.create", kind, urlencode({**form, "csrf": "guess"}))[0] == 403
    right = {**form, "csrf": token[1]}
    assert (
        ask(console, "POST", "/do/topic.create", {**kind, "sec-fetch-site": "cross-site"}, urlencode(right))[0] == 403
    )
    assert ask(console, "POST", "/do/no.such.change", kind, urlencode(right))[0] == 404
    status, headers, _ = ask(console, "POST", "/do/topic.grow", kind, urlencode(right))
    assert (status, headers["location"]) == (303, "/")  # refused by the cluster, and it does not send us elsewhere
    assert "made-by-nobody" not in ask(console, "GET", "/topics", {"cookie": cookie})[2].replace("topic.create", "")


def test_addresses_that_lead_nowhere(console: RunningConsole) -> None:
    for path in (
        "/nothing",
        "/topics/no-such-topic",
        "/group?name=nobody",
        "/topics/x/messages/0/99999999999999999999",
    ):
        status, _, text = ask(console, "GET", path)
        assert status == 404, path
        assert "<title>Not found" in text


def test_a_console_that_cannot_start_says_why() -> None:
    command = [sys.executable, "-m", "penstock", "console", "--history", ":memory:", "--listen", "0.0.0.0:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "--sign-in" in ended.stderr
