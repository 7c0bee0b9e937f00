"""The security of clusters in campaigns: every connection is encrypted, authenticated and authorized.

All listeners are SASL_SSL, sessions end after seconds, and what no ACL allows is denied. A campaign says what each
of its users may do, and that is what the user needs: the campaign fails if a node refuses a request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from penstock.client.wire.admin import Acl, Admin
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.users import MECHANISM, Security

SESSION_MS = 5000
USER = "User:"
REFUSALS = ("is Denied operation", f": {MECHANISM}: ", ": PLAIN: ")  # by ACLs, and of logins

Logins = Callable[[str], dict[str, str]]
"""The settings with which a user logs in, by librdkafka's names."""


def without_login(user: str) -> dict[str, str]:
    return {}


def may(user: str, operation: str, resource_type: str, resource: str, pattern: str = "LITERAL") -> Acl:
    return Acl(
        principal=f"{USER}{user}",
        operation=operation,
        resource_type=resource_type,
        resource=resource,
        pattern=pattern,
    )


@contextlib.contextmanager
def start_secured_cluster(
    directory: Path, acls: Sequence[Acl], properties: Mapping[str, str], *, proxied: bool = False
) -> Iterator[tuple[RunningCluster, Logins]]:
    """A cluster of three brokers, with these ACLs and their users; when it ends, no node has refused a request."""
    users = {each.principal.removeprefix(USER) for each in acls}
    keys = directory / "security"
    keys.mkdir(parents=True)
    security = Security(str(keys), {user: f"the password of {user}" for user in users})

    def login(user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": security.users[user],
            "ssl.ca.location": str(keys / "ca.pem"),
        }

    with start_cluster(
        directory / "cluster",
        brokers=3,
        properties={
            **properties,
            **security.node_properties,
            "allow.everyone.if.no.acl.found": "false",
            "connections.max.reauth.ms": str(SESSION_MS),
        },
        proxied=proxied,
        client_options=security.client_properties(),
    ) as cluster:
        let_in(cluster, security, acls)
        yield cluster, login
        check_refusals(cluster)


def let_in(cluster: RunningCluster, security: Security, acls: Sequence[Acl]) -> None:
    """Make users and ACLs; on return every broker knows them."""
    with cluster.admin(timeout=60.0) as admin:
        for user, password in security.users.items():
            admin.users.set_password(user, password, mechanism=MECHANISM)
        admin.acls.create(acls)

    def all_know() -> bool:
        for broker in cluster.brokers:
            with Admin(broker.bootstrap, options=security.client_properties()) as admin:
                if len(admin.acls.describe()) < len(acls):
                    return False
        return True

    cluster.wait_until(all_know, "the ACLs")


def check_refusals(cluster: RunningCluster) -> None:
    refused = [
        line
        for node in (*cluster.brokers, *cluster.controllers)
        for line in node.log_text().splitlines()
        if any(each in line for each in REFUSALS)
    ]
    assert not refused, refused[:5]
