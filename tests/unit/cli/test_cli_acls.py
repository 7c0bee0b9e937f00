"""`penstock acls` and `Admin.acls` against a real broker with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Acl, AclFilter, Admin
from penstock.model.errors import ErrorCode, KafkaError
from penstock.testing.nodes import RunningNode, start_node

if TYPE_CHECKING:
    from conftest import CommandLine

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("acls") / "node", properties=PROPERTIES) as node:
        yield node


@pytest.fixture(autouse=True)
def admin(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", node.bootstrap)
    with Admin(node.bootstrap) as admin:
        admin.acls.delete([AclFilter()])
        yield admin


def listed(cli: CommandLine, *options: str) -> list[tuple[str, ...]]:
    result = cli("acls", "list", "--json", *options)
    assert result.status == 0, result
    fields = ("resource_type", "resource", "pattern", "principal", "permission", "operation", "host")
    return [tuple(each[field] for field in fields) for each in json.loads(result.out)]


def added(cli: CommandLine, *options: str) -> None:
    result = cli("acls", "add", *options)
    assert result.status == 0, result


def test_add_list_and_remove(cli: CommandLine) -> None:
    added(cli, "--allow-principal", "User:alice", "--operation", "Read", "--operation", "describe-configs",
          "--topic", "orders", "--host", "10.0.0.0/8")  # fmt: skip
    added(cli, "--deny-principal", "User:eve", "--topic", "or", "--resource-pattern-type", "prefixed")
    alice = [
        ("TOPIC", "orders", "LITERAL", "User:alice", "ALLOW", "DESCRIBE_CONFIGS", "10.0.0.0/8"),
        ("TOPIC", "orders", "LITERAL", "User:alice", "ALLOW", "READ", "10.0.0.0/8"),
    ]
    eve = ("TOPIC", "or", "PREFIXED", "User:eve", "DENY", "ALL", "*")
    assert listed(cli) == [eve, *alice]
    assert listed(cli, "--topic", "orders") == alice
    assert sorted(listed(cli, "--topic", "orders", "--resource-pattern-type", "match")) == sorted([*alice, eve])
    assert listed(cli, "--principal", "User:eve") == [eve]
    assert listed(cli, "--group", "orders") == []
    shown = cli("acls", "remove", "--topic", "orders", "--operation", "Read", "--dry-run")
    assert (shown.status, len(listed(cli))) == (0, 3)
    assert cli("acls", "remove", "--topic", "orders", "--operation", "Read").status == 0
    assert listed(cli) == [eve, alice[0]]
    result = cli("acls", "remove", "--topic", "orders", "--resource-pattern-type", "match")
    assert result.status == 0
    assert listed(cli) == []
    assert "no ACLs" in cli("acls", "list").err


def test_what_producers_and_consumers_need(cli: CommandLine) -> None:
    added(cli, "--allow-principal", "User:p", "--producer", "--idempotent", "--topic", "t", "--transactional-id", "x")
    added(cli, "--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g")
    found = {(each[0], each[3], each[5]) for each in listed(cli)}
    assert found == {
        ("TOPIC", "User:p", "WRITE"),
        ("TOPIC", "User:p", "DESCRIBE"),
        ("TOPIC", "User:p", "CREATE"),
        ("TRANSACTIONAL_ID", "User:p", "WRITE"),
        ("TRANSACTIONAL_ID", "User:p", "DESCRIBE"),
        ("CLUSTER", "User:p", "IDEMPOTENT_WRITE"),
        ("TOPIC", "User:c", "READ"),
        ("TOPIC", "User:c", "DESCRIBE"),
        ("GROUP", "User:c", "READ"),
    }
    removing = ("--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g")
    assert cli("acls", "remove", *removing).status == 0
    assert {each[3] for each in listed(cli)} == {"User:p"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topic", "t"], "name a user"),
        (["--allow-principal", "User:a"], "name a resource"),
        (["--allow-principal", "User:a", "--topic", "t", "--operation", "Reed"], "no such operation"),
        (["--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"], "no such type"),
        (["--allow-principal", "User:a", "--consumer", "--topic", "t"], "needs a --topic and a --group"),
        (["--allow-principal", "User:a", "--producer", "--group", "g"], "needs a --topic"),
        (["--allow-principal", "a", "--topic", "t"], "Could not parse principal"),
        (["--allow-principal", "User:a", "--topic", "t", "--host", "10.0.0.0/99"], "Invalid CIDR notation"),
    ],
)
def test_mistakes_are_one_line(cli: CommandLine, options: list[str], said: str) -> None:
    result = cli("acls", "add", *options)
    assert result.status != 0
    assert said in result.err
    assert listed(cli) == []


def test_the_admin_client(admin: Admin) -> None:
    orders: dict[str, Any] = {"principal": "User:alice", "resource_type": "topic", "resource": "orders"}
    admin.acls.create(
        [Acl(**orders, operation="read"), Acl(principal="User:b", operation="ALTER", resource_type="CLUSTER")]
    )
    admin.acls.create([Acl(**orders, operation="READ")])
    (found,) = admin.acls.describe(AclFilter(resource="orders", pattern="match", resource_type="TOPIC"))
    assert found == Acl(principal="User:alice", operation="READ", resource_type="TOPIC", resource="orders")
    with pytest.raises(KafkaError) as refused:
        admin.acls.create([Acl(**orders, operation="any")])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ValueError, match="'reed' is not one of"):
        admin.acls.create([Acl(**orders, operation="reed")])
    assert admin.acls.delete([AclFilter(principal="User:alice"), AclFilter(operation="READ")]) == [found]
    (left,) = admin.acls.describe()
    assert (left.resource, left.principal) == ("kafka-cluster", "User:b")
