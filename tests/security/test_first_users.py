"""The first user of a cluster, and passwords in a file that changes while the node runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.broker.authentication.password_file import hash_password
from penstock.client.errors import NotAuthorized
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import start_node
from security.sasl_world import options

LISTENER = {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}


def test_the_first_scram_user_is_written_when_the_node_is_formatted(tmp_path: os.PathLike[str]) -> None:
    properties = {**LISTENER, "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    file = os.path.join(tmp_path, "format.properties")
    with open(file, "w", encoding="utf-8") as text:
        data = os.path.join(tmp_path, "node", "data")
        node = {"process.roles": "broker,controller", "node.id": "1", "listeners": "PLAINTEXT://:0", "log.dirs": data}
        text.writelines(f"{name}={value}\n" for name, value in {**node, **properties}.items())
    command = [sys.executable, "-m", "penstock", "format", file, "--add-scram", "SCRAM-SHA-512=[name=root]"]
    done = subprocess.run(command, input="roots password\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "formatted" in done.stderr
    again = subprocess.run(command, input="x\n", capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is formatted already" in again.stderr
    root = options("SCRAM-SHA-512", "root", "roots password")
    with start_node(os.path.join(tmp_path, "node"), properties=properties, client_options=root) as running:
        with Admin(running.bootstrap, options=root) as admin:
            assert [user.name for user in admin.users.list()] == ["root"]
        running.restart()
        with Admin(running.bootstrap, options=root) as admin:
            admin.topics.create("t", partitions=1)


def test_a_password_file_that_changes(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "passwords")

    def write(password: str) -> None:
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"admin:{hash_password(password, b'salt')}\n")
        os.replace(f"{path}.new", path)

    write("first")
    properties = {
        **LISTENER,
        "sasl.enabled.mechanisms": "PLAIN",
        "penstock.sasl.plain.authenticator": "password-file",
        "penstock.authenticator.password-file.path": path,
    }
    first, second = options(password="first"), options(password="second")
    with start_node(os.path.join(tmp_path, "node"), properties=properties, client_options=first) as node:
        with Admin(node.bootstrap, options=second) as admin, pytest.raises(NotAuthorized):
            admin.topics.list()
        write("second")
        with Admin(node.bootstrap, options=second) as admin:
            admin.topics.list()
        with Admin(node.bootstrap, options=first) as admin, pytest.raises(NotAuthorized):
            admin.topics.list()
