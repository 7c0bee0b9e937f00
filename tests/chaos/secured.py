"""The security of clusters in campaigns: every connection is encrypted, authenticated and authorized.

All listeners are SASL_SSL, sessions end after seconds, and nobody may do what no ACL allows. The writer may write and
the reader may read; neither may do the other's work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.client.wire.admin import Acl
from penstock.testing.clusters import RunningCluster
from penstock.testing.users import MECHANISM, Security

WRITER, READER = "writer", "reader"
PASSWORDS = {WRITER: "the writers password", READER: "the readers password"}
SESSION_MS = 5000


class Secured:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._security = Security(str(directory), PASSWORDS)

    @property
    def node_properties(self) -> dict[str, str]:
        return {
            **self._security.node_properties,
            "allow.everyone.if.no.acl.found": "false",
            "connections.max.reauth.ms": str(SESSION_MS),
        }

    @property
    def administrator(self) -> dict[str, str]:
        return self._security.client_properties()

    def librdkafka(self, user: str) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": str(self._directory / "ca.pem"),
        }

    def let_in(self, cluster: RunningCluster, topic: str) -> None:
        """Make the users and their ACLs."""
        needed = [
            (WRITER, "WRITE", "TOPIC", topic),
            (READER, "READ", "TOPIC", topic),
            (READER, "READ", "GROUP", "along"),
            (READER, "READ", "GROUP", "reader"),
        ]
        with cluster.admin(timeout=60.0) as admin:
            for user, password in PASSWORDS.items():
                admin.users.set_password(user, password, mechanism=MECHANISM)
            admin.acls.create(
                Acl(principal=f"User:{user}", operation=operation, resource_type=kind, resource=name, pattern="LITERAL")
                for user, operation, kind, name in needed
            )
