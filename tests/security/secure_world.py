"""A broker on SASL_SSL with SCRAM users and ACLs, and files with the settings of its clients."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.client.wire.admin import Acl, Admin
from penstock.local.ports import free_ports
from penstock.testing.nodes import RunningNode, start_node
from penstock.tls.authority import Authority
from security.sasl_world import ADMIN_PASSWORD, PLAIN_MODULE, SCRAM_MODULE, USERS

PASSWORD = "a users password"
METRICS_PASSWORD = "numbers only"


class SecureNode:
    """`alice` may do everything with topics and groups whose names begin with `orders`, and `eve` nothing."""

    def __init__(self, node: RunningNode, directory: Path) -> None:
        self.bootstrap = node.bootstrap
        self.log_text = node.log_text
        self._directory = directory

    def options(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        module = f'{SCRAM_MODULE} required username="{user}" password="{password}";'
        return client_options(self._directory, "SCRAM-SHA-512", module)

    def file(self, user: str, password: str = PASSWORD) -> str:
        return self.write(f"{user}.properties", self.options(user, password))

    def write(self, name: str, options: Mapping[str, str]) -> str:
        path = self._directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        path.chmod(0o600)
        return str(path)

    def reference(self, user: str) -> str:
        return f"{self.bootstrap}@{self.file(user)}"

    def admin(self) -> Admin:
        return Admin(self.bootstrap, options=administrator(self._directory))


def client_options(directory: Path, mechanism: str, module: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": module,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }


def administrator(directory: Path) -> dict[str, str]:
    return client_options(directory, "PLAIN", f'{PLAIN_MODULE} required username="admin" password="{ADMIN_PASSWORD}";')


@contextmanager
def secure_node(directory: Path) -> Iterator[SecureNode]:
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("Test CA", now)
    (directory / "ca.pem").write_text(authority.certificate)
    (directory / "node.pem").write_text(authority.issue("node-1", ["localhost", "127.0.0.1"], now).pem)
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.plaintext.plain.sasl.jaas.config": USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "delegation.token.secret.key": "tokens secret",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "penstock.metrics.listener": f"127.0.0.1:{free_ports(1)[0]}",
        "penstock.metrics.protocol": "https",
        "penstock.metrics.user": "prometheus",
        "penstock.metrics.password": METRICS_PASSWORD,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with start_node(directory / "node", properties=properties, client_options=administrator(directory)) as running:
        node = SecureNode(running, directory)
        with node.admin() as admin:
            for user in ("alice", "eve"):
                admin.users.set_password(user, PASSWORD)
            admin.acls.create(
                Acl(
                    principal="User:alice",
                    operation="ALL",
                    resource_type=kind,
                    resource="orders",
                    pattern="PREFIXED",
                )
                for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
            )
        yield node
