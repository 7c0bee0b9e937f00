"""One broker with a listener of every protocol, and a user of every mechanism who may write to a topic.

The users: a certificate's name, one in the JAAS configuration, two with SCRAM credentials, and the subject of a bearer
token (unsigned, as the suites of clients use them).
"""

from __future__ import annotations

import base64
import datetime
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from penstock.client.wire.admin import Acl, Admin
from penstock.local.ports import free_ports
from penstock.testing.nodes import start_node
from penstock.tls.authority import Authority
from security.sasl_world import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE

TOPIC = "written"
PASSWORD = "its own password"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERS = {"": "CN=client", "PLAIN": "paula", "SCRAM-SHA-256": "sam", "SCRAM-SHA-512": "sue", "OAUTHBEARER": "olaf"}


class Case(NamedTuple):
    protocol: str
    mechanism: str

    @property
    def user(self) -> str:
        return USERS[self.mechanism]

    def __str__(self) -> str:
        return f"{self.protocol} {self.mechanism}".strip()


CASES = [Case("SSL", ""), *(Case(protocol, each) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for each in MECHANISMS)]


class Broker:
    def __init__(self, admin: str, ports: Mapping[str, int], directory: Path) -> None:
        self.admin = admin
        self.directory = directory
        self._ports = ports

    def address(self, case: Case) -> str:
        return f"localhost:{self._ports[case.protocol]}"

    def context(self, case: Case) -> ssl.SSLContext | None:
        if case.protocol == "SASL_PLAINTEXT":
            return None
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        if case.protocol == "SSL":
            context.load_cert_chain(self.directory / "client.pem")
        return context

    def java(self, case: Case) -> str:
        """A file of client settings by Kafka's names."""
        logins = {
            "PLAIN": f'{PLAIN_MODULE} required username="{case.user}" password="{PASSWORD}";',
            "OAUTHBEARER": f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="{case.user}";',
        }
        scram = f'{SCRAM_MODULE} required username="{case.user}" password="{PASSWORD}";'
        lines = [f"security.protocol={case.protocol}"]
        if case.mechanism:
            lines += [f"sasl.mechanism={case.mechanism}", f"sasl.jaas.config={logins.get(case.mechanism, scram)}"]
        if case.protocol != "SASL_PLAINTEXT":
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.directory / 'ca.pem'}"]
        if case.protocol == "SSL":
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.directory / 'client.pem'}"]
        path = self.directory / f"{case.protocol}-{case.mechanism}.properties"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def librdkafka(self, case: Case) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap.servers": self.address(case), "security.protocol": case.protocol}
        if case.protocol != "SASL_PLAINTEXT":
            settings["ssl.ca.location"] = str(self.directory / "ca.pem")
        if case.protocol == "SSL":
            settings |= dict.fromkeys(
                ("ssl.certificate.location", "ssl.key.location"), str(self.directory / "client.pem")
            )
        if case.mechanism:
            settings["sasl.mechanism"] = case.mechanism
        if case.mechanism not in ("", "OAUTHBEARER"):
            settings |= {"sasl.username": case.user, "sasl.password": PASSWORD}
        return settings


@contextmanager
def every_broker(directory: Path) -> Iterator[Broker]:
    now = datetime.datetime.now(datetime.UTC)
    authority = Authority.create("Test CA", now)
    (directory / "ca.pem").write_text(authority.certificate)
    (directory / "node.pem").write_text(authority.issue("node-1", ["localhost"], now).pem)
    (directory / "client.pem").write_text(authority.issue("client", (), now).pem)
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    users = f'{PLAIN_MODULE} required user_paula="{PASSWORD}";'
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": users,
        "penstock.sasl.oauthbearer.allow.unsecured.tokens": "true",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "tokens secret",
    }
    with start_node(directory / "node", properties=properties, port=ports["PLAINTEXT"]) as node:
        with Admin(node.bootstrap) as admin:
            admin.topics.create(TOPIC, partitions=1)
            for mechanism in MECHANISMS[1:3]:
                admin.users.set_password(USERS[mechanism], PASSWORD, mechanism=mechanism)
            admin.acls.create(
                Acl(principal=f"User:{user}", operation=operation, resource_type=kind, resource=name, pattern="LITERAL")
                for user in USERS.values()
                for operation, kind, name in (
                    ("WRITE", "TOPIC", TOPIC),
                    ("IDEMPOTENT_WRITE", "CLUSTER", "kafka-cluster"),
                )
            )
        yield Broker(node.bootstrap, ports, directory)


def token(subject: str) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now, 'exp': now + 3600})}."
