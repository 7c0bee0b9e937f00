"""Kafka's own tools at a broker that asks for a login: delegation tokens, and a record from Java's client."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from clients.drivers.java import QUICK_START, class_path
from penstock.client.wire.admin import Admin
from penstock.testing.nodes import RunningNode, start_node
from security.sasl_world import NODE, SCRAM_MODULE, options


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    class_path()  # skips where there is no Java
    with start_node(tmp_path_factory.mktemp("java"), properties=NODE, client_options=options()) as node:
        yield node


def tool(broker: RunningNode, name: str, *arguments: str, config: str, stdin: str = "") -> str:
    command = ["java", *QUICK_START, "-cp", class_path(), name, "--bootstrap-server", broker.bootstrap, *arguments]
    with_config = "--producer.config" if name.endswith("ConsoleProducer") else "--command-config"
    done = subprocess.run([*command, with_config, config], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def client_file(directory: os.PathLike[str], name: str, mechanism: str, login: str) -> str:
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n")
    return path


def test_tokens_by_kafkas_tools(broker: RunningNode, tmp_path: os.PathLike[str]) -> None:
    with Admin(broker.bootstrap, options=options()) as admin:
        admin.users.set_password("erika", "erikas-password", mechanism="SCRAM-SHA-512")
    with Admin(broker.bootstrap, options=options("SCRAM-SHA-512", "erika", "erikas-password")) as erika_admin:
        erika_admin.topics.create("from-java", partitions=1)
    erika = client_file(
        tmp_path, "erika", "SCRAM-SHA-512", f'{SCRAM_MODULE} required username="erika" password="erikas-password";'
    )
    created = tool(
        broker,
        "org.apache.kafka.tools.DelegationTokenCommand",
        "--create",
        "--max-life-time-period",
        "-1",
        config=erika,
    )
    token_id, hmac = created.split("\n")[-2 if created.endswith("\n") else -1].split()[:2]
    with_token = client_file(
        tmp_path,
        "token",
        "SCRAM-SHA-256",
        f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";',
    )
    arguments = ("--topic", "from-java")
    tool(broker, "org.apache.kafka.tools.ConsoleProducer", *arguments, config=with_token, stdin="hello\n")
    with Admin(broker.bootstrap, options=options()) as ours:
        assert [token.owner for token in ours.tokens.list()] == ["User:erika"]
