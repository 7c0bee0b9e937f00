"""HTTPS, users of the cluster and roles; and what the registry refuses to do without them."""

from __future__ import annotations

import base64
import datetime
import functools
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.errors import BadSetting
from penstock.local.ports import free_ports
from penstock.local.web import LocalRegistry
from penstock.registry.process import ServerSettings
from penstock.registry.web.roles import Role, Roles
from penstock.testing.cluster import Cluster
from penstock.tls.files import create_authority, issue
from registry_nodes import Reply, record_schema
from waiting import wait_until

USERS = {"alice": "alice-secret", "bob": "bob-secret", "ops": "ops-secret"}
ROLES = """
[alice]
read = [""]
write = ["orders-"]

[ops]
admin = [""]
"""


class SecureRegistry(LocalRegistry):
    authority: str = ""

    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/").status == 401
        except OSError:
            return False

    def ask(self, method: str, path: str, body: object = None, user: str = "", password: str | None = None) -> Reply:
        context = ssl.create_default_context(cafile=self.authority)
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=60, context=context)
        headers = {"content-type": "application/json"}
        if user:
            token = base64.b64encode(f"{user}:{USERS[user] if password is None else password}".encode()).decode()
            headers["authorization"] = f"Basic {token}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Reply(answer.status, json.loads(answer.read()))
        finally:
            connection.close()


@pytest.fixture(scope="module")
def secure_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SecureRegistry]]:
    """Two nodes of one registry, on a cluster with passwords."""
    directory = tmp_path_factory.mktemp("secure")
    now = datetime.datetime.now(datetime.UTC)
    pem, roles, trusted = (str(directory / name) for name in ("registry.pem", "roles.toml", "ca.pem"))
    issue(create_authority(str(directory), "registry", now), pem, "r", ["127.0.0.1"], now)
    Path(roles).write_text(ROLES)
    security = ["--certificate", pem, "--key", pem, "--authority", trusted, "--roles", roles]
    with Cluster(1, users=USERS, properties={"group.initial.rebalance.delay.ms": "0"}) as cluster:
        bootstrap = f"@{cluster.client_file()}"
        nodes = [
            SecureRegistry(
                str(directory / f"node-{port}"), bootstrap=bootstrap, host="127.0.0.1", port=port, arguments=security
            )
            for port in free_ports(2, "127.0.0.1")
        ]
        try:
            for node in nodes:
                node.authority = trusted
                node.start()
            for node in nodes:
                node.wait_ready(60)
            yield nodes
        finally:
            for node in nodes:
                node.stop()


def everywhere(nodes: list[SecureRegistry], path: str) -> bool:
    return all(node.ask("GET", path, user="alice").status == 200 for node in nodes)


def test_a_write_is_forwarded_with_the_users_password_over_https(secure_nodes: list[SecureRegistry]) -> None:
    for number, node in enumerate(secure_nodes):
        schema = {"schema": record_schema(f"Forwarded{number}", "id")}
        path = f"/subjects/orders-{number}/versions"
        assert node.ask("POST", path, schema, user="alice").status == 200
        assert node.ask("POST", f"/subjects/users-{number}/versions", schema, user="alice").code == 40301
        wait_until(functools.partial(everywhere, secure_nodes, path), f"{path} on all nodes")
    for number in range(len(secure_nodes)):
        assert secure_nodes[0].ask("DELETE", f"/subjects/orders-{number}", user="ops").content == [1]


def test_users_of_the_cluster_and_their_roles(secure_nodes: list[SecureRegistry]) -> None:
    ask = secure_nodes[0].ask
    schema = {"schema": record_schema("Order", "id")}
    assert ask("GET", "/subjects").status == 401
    assert ask("GET", "/subjects", user="alice", password="wrong").status == 401
    made = ask("POST", "/subjects/orders-value/versions", schema, user="alice")
    assert made.status == 200, made
    by_id = f"/schemas/ids/{made.content['id']}"
    assert ask("GET", by_id, user="alice").status == 200
    assert ask("GET", by_id).status == 401
    # bob is a user of the cluster without a role, alice writes orders only, ops may do everything.
    assert ask("GET", by_id, user="bob").code == 40301
    assert ask("GET", "/subjects", user="bob").content == []
    assert ask("GET", "/config", user="bob").status == 200
    assert ask("GET", "/config/orders-value?defaultToGlobal=true", user="bob").code == 40301
    assert ask("GET", "/subjects", user="alice").content == ["orders-value"]
    assert ask("POST", "/subjects/users-value/versions", schema, user="alice").code == 40301
    assert ask("PUT", "/config", {"compatibility": "NONE"}, user="alice").code == 40301
    assert ask("PUT", "/config/orders-value", {"compatibility": "NONE"}, user="alice").code == 40301
    assert ask("PUT", "/config", {"compatibility": "NONE"}, user="ops").status == 200
    assert ask("DELETE", "/subjects/orders-value", user="alice").content == [1]
    assert ask("DELETE", "/subjects/orders-value?permanent=true", user="alice").code == 40301
    assert ask("DELETE", "/subjects/orders-value?permanent=true", user="ops").content == [1]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::"])
def test_other_addresses_than_loopback_need_https_and_roles(host: str) -> None:
    with pytest.raises(BadSetting, match="reachable from other machines"):
        ServerSettings(host=host).check()
    with pytest.raises(BadSetting, match="reachable from other machines"):
        ServerSettings(host=host, certificate="a", key="b").check()
    ServerSettings(host=host, certificate="a", key="b", roles="c").check()
    ServerSettings(host=host, insecure=True).check()


def test_loopback_needs_nothing() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        ServerSettings(host=host).check()
    with pytest.raises(BadSetting, match="belong together"):
        ServerSettings(certificate="a").check()


def test_roles_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "roles.toml"
    path.write_text(ROLES)
    roles = Roles.read(str(path))
    assert roles.allows("alice", Role.WRITE, "orders-value")
    assert not roles.allows("alice", Role.WRITE, "order")
    assert not roles.allows("alice", Role.ADMIN, "orders-value")
    assert roles.allows("ops", Role.ADMIN, "anything")
    assert not roles.allows("mallory", Role.READ, "orders-value")
    for wrong in ("[alice]\nrule = []", "[alice]\nread = 'x'", "alice = 1", "["):
        path.write_text(wrong)
        with pytest.raises(BadSetting):
            Roles.read(str(path))
