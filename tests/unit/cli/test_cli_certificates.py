"""`penstock certificates`: from an authority to a handshake, renewal, and what is refused."""

from __future__ import annotations

import json
import os
import ssl
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import CommandLine


@pytest.fixture(autouse=True)
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shown(cli: CommandLine, *files: str) -> list[dict[str, Any]]:
    result = cli("certificates", "show", "--json", *files)
    assert result.status == 0, result
    found: list[dict[str, Any]] = json.loads(result.out)
    return found


def test_create_issue_show_and_renew(cli: CommandLine) -> None:
    assert cli("certificates", "create", "authority").status == 0
    hosts = ("--host", "kafka-1.example", "--host", "10.0.0.1")
    assert cli("certificates", "issue", "node-1", *hosts, "--ca", "authority", "--days", "10").status == 0
    assert cli("certificates", "issue", "alice", "--ca", "authority").status == 0
    node, alice, authority = shown(cli, "node-1.pem", "alice.pem", "authority/ca.pem")
    assert (node["subject"], node["issuer"], node["hosts"]) == ("CN=node-1", "CN=Penstock CA", [*hosts[1::2]])
    assert node["days_left"] in (9, 10)
    assert (alice["subject"], alice["hosts"]) == ("CN=alice", [])
    assert authority["days_left"] > 3600
    assert "node-1.pem expires soon" in cli("certificates", "show", "node-1.pem", "alice.pem").err
    for name in ("node-1.pem", "alice.pem", "authority/ca-key.pem"):
        assert stat.S_IMODE(os.stat(name).st_mode) == 0o600

    before = Path("node-1.pem").read_text()
    assert cli("certificates", "renew", "node-1.pem", "--ca", "authority").status == 0
    (renewed,) = shown(cli, "node-1.pem")
    assert renewed["days_left"] > 800
    assert {**renewed, "expires": 0, "days_left": 0} == {**node, "expires": 0, "days_left": 0}
    assert Path("node-1.pem").read_text() != before
    Path("both.pem").write_text(Path("authority/ca.pem").read_text() + Path("node-1.pem").read_text())
    assert [each["subject"] for each in shown(cli, "both.pem")] == ["CN=Penstock CA", "CN=node-1"]
    os.unlink("both.pem")
    ssl.create_default_context(cafile="authority/ca.pem").load_cert_chain("node-1.pem")
    assert sorted(os.listdir()) == ["alice.pem", "authority", "node-1.pem"]


def test_what_is_refused(cli: CommandLine) -> None:
    for name in ("one", "two"):
        assert cli("certificates", "create", name, "--name", name).status == 0
    assert cli("certificates", "issue", "alice", "--ca", "one").status == 0
    Path("text").write_text("no certificate")
    for arguments, message in (
        (("create", "one"), "one has an authority already"),
        (("issue", "alice", "--ca", "one"), "alice.pem exists already"),
        (("issue", "bob", "--ca", "three"), "three/ca-key.pem: No such file or directory"),
        (("issue", "bob", "--ca", "one", "--host", "bücher.example"), "a certificate for bob cannot be issued"),
        (("renew", "alice.pem", "--ca", "two"), "issued by CN=one, not by this authority"),
        (("renew", "one/ca.pem", "--ca", "one"), "of an authority is not renewed"),
        (("show", "text"), "text: it has no certificate in PEM"),
    ):
        result = cli("certificates", *arguments)
        assert result.status == 1
        assert message in result.err
        assert result.err.count("\n") == 1
