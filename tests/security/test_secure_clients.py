"""All our clients at a broker with TLS, passwords and ACLs: settings in files, in profiles, and as options."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock import Admin, AsyncProducer, Consumer, Producer, String
from penstock.arrow import Transaction, read_table, write_table
from penstock.client.errors import NotAuthorized
from penstock.model.errors import KafkaError
from security.sasl_world import ADMIN_PASSWORD, SCRAM_MODULE
from security.secure_world import METRICS_PASSWORD, PASSWORD, SecureNode, administrator, client_options, secure_node

if TYPE_CHECKING:
    from conftest import CommandLine

SECRETS = (PASSWORD, ADMIN_PASSWORD, METRICS_PASSWORD)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secure")


@pytest.fixture(scope="module")
def node(directory: Path) -> Iterator[SecureNode]:
    with secure_node(directory) as running:
        yield running


@pytest.fixture
def profiles(node: SecureNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text(f'[orders]\nbootstrap.servers = "{node.bootstrap}"\nconfig = "{node.file("alice")}"\n')
    path.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_PROFILES", str(path))


def test_producers_and_consumers(node: SecureNode, profiles: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Admin("@orders") as admin:
        admin.topics.create("orders-1", partitions=1)
    # Kafka's names among the settings, a reference to a profile, and one to a file.
    with Producer(node.bootstrap, value=String(), settings=node.options("alice")) as producer:
        producer.send("orders-1", "one")

    async def write() -> None:
        async with AsyncProducer("@orders", value=String()) as twin:
            await twin.send("orders-1", "two")

    asyncio.run(write())
    with Consumer(node.reference("alice"), "orders-1", group="orders", value=String(), start="earliest") as consumer:
        found = [record.value for record in itertools.islice(consumer, 2)]

    assert found == ["one", "two"]
    with Consumer(node.reference("alice"), "orders-1", value=String(), start="earliest") as alone:  # in no group
        assert [record.value for record in itertools.islice(alone, 2)] == ["one", "two"]
    assert not any(secret in caplog.text for secret in SECRETS)


def test_who_may_not_is_told_so_without_secrets(node: SecureNode) -> None:
    with pytest.raises(NotAuthorized) as refusal:
        Producer(node.reference("eve")).send("orders-1", b"x")
    assert PASSWORD not in str(refusal.value)


def test_arrow_with_options_a_reference_and_a_delegation_token(node: SecureNode, directory: Path) -> None:
    with Admin(node.reference("alice")) as admin:
        admin.topics.create("orders-2", partitions=2)
        token = admin.tokens.create()
    secret = base64.b64encode(token.hmac).decode()
    module = f'{SCRAM_MODULE} required username="{token.token_id}" password="{secret}" tokenauth="true";'
    by_token = client_options(directory, "SCRAM-SHA-512", module)
    table = pa.table({"value": [b"%d" % number for number in range(100)]})

    with Transaction(node.bootstrap, "orders-writer", options=by_token) as transaction:
        write_table(node.bootstrap, "orders-2", table, transaction=transaction, options=by_token)
        transaction.commit()

    assert read_table(node.reference("alice"), "orders-2").num_rows == 100
    assert read_table(node.bootstrap, "orders-2", options=node.options("alice")).num_rows == 100


def test_commands(
    node: SecureNode, directory: Path, profiles: None, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def penstock(*arguments: str, stdin: bytes = b"") -> str:
        result = cli(*arguments, stdin=stdin)
        assert result.status == 0, result
        assert not any(secret in result.out + result.err for secret in SECRETS)
        return result.out

    penstock("topics", "create", "orders-3", "-b", node.bootstrap, "--command-config", node.file("alice"))
    penstock("produce", "orders-3", "--profile", "orders", stdin=b"hello\n")
    monkeypatch.setenv("PENSTOCK_PROFILE", "orders")
    assert penstock("consume", "orders-3", "--from-beginning", "--exit") == "hello\n"
    assert "orders-3" in penstock("topics", "list", "--names")
    penstock("groups", "list")
    monkeypatch.delenv("PENSTOCK_PROFILE")

    metrics = {"penstock.metrics.user": "prometheus", "penstock.metrics.password": METRICS_PASSWORD}
    settings = {"bootstrap.servers": node.bootstrap, **administrator(directory), **metrics}
    root = node.write("root.properties", settings)
    assert "alice" in penstock("users", "list", "--command-config", root)
    assert "User:alice" in penstock("acls", "list", "--command-config", root)
    page = penstock("top", "--once", "--interval", "0.1", "-b", f"@{root}")
    assert "orders-3" in page and "no metrics" not in page  # over TLS, with the password
    penstock("quotas", "list", "-b", f"@{root}")
    penstock("tokens", "list", "-b", f"@{root}")
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "127.0.0.1:1")  # the file's addresses belong to its settings
    report = json.loads(penstock("doctor", "--json", "--watch", "0", "--command-config", root))
    assert report["checked"] and report["findings"] == []


def test_the_doctor_says_that_a_login_fails(node: SecureNode, cli: CommandLine) -> None:
    result = cli("doctor", node.bootstrap, "--command-config", node.file("stranger", "guessed"))

    assert result.status == 2
    assert "the broker refuses the login" in result.out and "guessed" not in result.out


def test_a_pipeline_with_a_wrong_password_ends_before_spark_starts(
    node: SecureNode, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it is to run for ever: another attempt would fail, too."""
    monkeypatch.setattr("penstock.cli.pipeline._session", lambda *_: pytest.fail("Spark was started"))
    wrong = node.write("wrong.properties", node.options("alice", "no password"))
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"name: copy\nbootstrap: {node.bootstrap}@{wrong}\n"
        "sources: {orders: {topic: orders-1}}\nsinks: {copies: {from: orders, topic: orders-2}}\n"
    )
    status, _, err = cli("pipeline", "run", str(file))
    assert status == 1
    assert err.splitlines()[-1].startswith("penstock: copy: ")
    assert err.splitlines()[-1].endswith("correct the credentials, or give the user the right that is missing")
    assert "no password" not in err


@pytest.mark.parametrize("name", ["a,b=c;d e", "User:admin", "two\nlines refused", "*", '"'])
def test_principals_with_odd_characters(node: SecureNode, name: str) -> None:
    """They remain such principals: no superuser, none that an ACL names, and no line of their own in the log."""
    with node.admin() as admin:
        admin.users.set_password(name, PASSWORD)
        assert name in [user.name for user in admin.users.list()]
    with Admin(node.bootstrap, options=odd_login(node, name)) as stranger:
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            stranger.topics.create("orders-odd", partitions=1)
        assert stranger.topics.list() == []
    assert not any(line.startswith("lines refused") for line in node.log_text().splitlines())
    with node.admin() as admin:
        admin.users.remove(name, mechanism="SCRAM-SHA-512")


@pytest.mark.parametrize("name", ["ünïcode", "a\0b"])
def test_names_that_scram_cannot_carry(node: SecureNode, name: str) -> None:
    """Kafka's SCRAM has names of ASCII characters, without NUL."""
    with node.admin() as admin:
        admin.users.set_password(name, PASSWORD)
    with Admin(node.bootstrap, options=odd_login(node, name)) as stranger, pytest.raises(NotAuthorized):
        stranger.topics.list()
    with node.admin() as admin:
        admin.users.remove(name, mechanism="SCRAM-SHA-512")


def odd_login(node: SecureNode, name: str) -> dict[str, str]:
    """With the name as it is: JAAS text could not hold each."""
    options = {key: value for key, value in node.options("nobody").items() if key != "sasl.jaas.config"}
    return {**options, "sasl.username": name, "sasl.password": PASSWORD}
