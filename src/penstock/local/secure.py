"""A local cluster that is secure: certificates for its nodes, a first user, and the settings of clients.

    DIR/ca.pem                the certificate that clients have to trust
    DIR/ca-key.pem            the key of the authority that issues the certificates of the nodes
    DIR/client.properties     settings of clients that log in as the user `admin`
    DIR/node-1/keystore.pem   the key and the certificate of a node

Clients connect with SASL_SSL (SCRAM-SHA-512). Nodes know each other by their certificates: brokers have a second
listener for each other, on loopback, as the controllers do. ACLs decide what users may do; `admin` and the nodes are
`super.users`.

The password of `admin` is set by the first node over the listener for nodes, once the cluster runs. So it makes no
difference whether the cluster is new or was started without security before, and a lost `client.properties` is made
again, with a new password. All other files are kept too: a certificate is issued again only if it lacks a host or is
about to expire. A directory that is secure stays so: `penstock up` finds `ca.pem` there.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import socket
import time
from typing import Final

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.client.wire.connection import Connection
from penstock.client.wire.login import login_from, tls_from
from penstock.local.cluster import LocalCluster, properties_of
from penstock.local.node import CONTROLLER_LISTENER, LocalNode
from penstock.local.ports import free_ports, is_free
from penstock.local.process import NodeFailed
from penstock.settings.acls import ACL_AUTHORIZERS
from penstock.settings.jaas import SCRAM_MODULE
from penstock.settings.listeners import is_wildcard
from penstock.tls.authority import Authority
from penstock.tls.files import (
    AUTHORITY_KEY,
    TRUST_STORE,
    CertificateError,
    create_authority,
    issue,
    open_authority,
    read_certificate,
    write_private,
)

CLIENT_LISTENER: Final = "CLIENTS"
NODE_LISTENER: Final = "NODES"
NODE_HOST: Final = "127.0.0.1"
MECHANISM: Final = "SCRAM-SHA-512"
ADMIN: Final = "admin"
CLIENT_PROPERTIES: Final = "client.properties"
KEY_STORE: Final = "keystore.pem"
TOKEN_SECRET: Final = "delegation.token.secret.key"
DAYS_LEFT_MIN: Final = 30
_DEFAULTS: Final = {
    "sasl.enabled.mechanisms": MECHANISM,
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
    "authorizer.class.name": ACL_AUTHORIZERS[0],
}
_LOGIN_S: Final = 60.0
_POLL_S: Final = 0.05


class SecureCluster:
    def __init__(self, directory: str, cluster: LocalCluster, now: datetime.datetime) -> None:
        """Write the certificates that are missing, and give the nodes their settings. CertificateError if that fails.

        Settings that a node has already (the options of `penstock up`) are kept.
        """
        self._directory = os.path.abspath(directory)
        self._cluster = cluster
        self._now = now
        self._authority: Authority | None = None
        if not os.path.exists(os.path.join(self._directory, TRUST_STORE)):
            self._authority = create_authority(self._directory, "Penstock local cluster", now)
        elif os.path.exists(os.path.join(self._directory, AUTHORITY_KEY)):
            self._authority = open_authority(self._directory)
        secret = self._token_secret()
        for node, port in zip(cluster.nodes, self._node_ports(), strict=True):
            os.makedirs(node.directory, mode=0o700, exist_ok=True)
            os.chmod(node.directory, 0o700)
            self._certify(node)
            node.properties = {**self._settings_of(node, port), **node.properties}
            node.defaults = {**_DEFAULTS, TOKEN_SECRET: secret, **node.defaults}
            node.client_options = self._node_options(node)
            if node.is_broker:
                node.checked_at = (NODE_HOST, port)

    @property
    def client_properties(self) -> str:
        return os.path.join(self._directory, CLIENT_PROPERTIES)

    # -- settings -----------------------------------------------------------------------------------------------------

    def _settings_of(self, node: LocalNode, node_port: int) -> dict[str, str]:
        protocols = {CLIENT_LISTENER: "SASL_SSL", NODE_LISTENER: "SSL", CONTROLLER_LISTENER: "SSL"}
        settings = {
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": NODE_LISTENER,
            "ssl.keystore.location": os.path.join(node.directory, KEY_STORE),
            "ssl.truststore.location": os.path.join(self._directory, TRUST_STORE),
            "super.users": self._super_users(node),
        }
        if node.is_broker:
            listeners = [f"{CLIENT_LISTENER}://{node.address}", f"{NODE_LISTENER}://{NODE_HOST}:{node_port}"]
            settings["listeners"] = ",".join(listeners)
        return settings

    def _super_users(self, node: LocalNode) -> str:
        """Those in the file of the node, and all nodes: brokers may have been added."""
        users = properties_of(node.directory).get("super.users", f"User:{ADMIN}").split(";")
        users += [f"User:CN={_name_of(each)}" for each in self._cluster.nodes]
        return ";".join(dict.fromkeys(filter(None, map(str.strip, users))))

    def _node_options(self, node: LocalNode) -> dict[str, str]:
        """Of clients that are this node."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.path.join(self._directory, TRUST_STORE),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": os.path.join(node.directory, KEY_STORE),
        }

    def _node_ports(self) -> list[int]:
        """A port for the listener for nodes, for each broker: the one of the last start if it is free."""
        taken = {node.port for node in self._cluster.nodes}
        ports = []
        for node in self._cluster.nodes:
            remembered = self._remembered(node)
            if remembered is None or remembered in taken or not is_free(remembered, NODE_HOST):
                remembered = next(port for port in free_ports(len(taken) + 1, NODE_HOST) if port not in taken)
            taken.add(remembered)
            ports.append(remembered)
        return ports

    def _remembered(self, node: LocalNode) -> int | None:
        for listener in properties_of(node.directory).get("listeners", "").split(","):
            name, _, port = listener.strip().partition(f"://{NODE_HOST}:")
            if name == NODE_LISTENER and port.isdecimal():
                return int(port)
        return None

    def _token_secret(self) -> str:
        known = (properties_of(node.directory).get(TOKEN_SECRET) for node in self._cluster.nodes)
        return next(filter(None, known), None) or secrets.token_urlsafe(32)

    # -- certificates -------------------------------------------------------------------------------------------------

    def _certify(self, node: LocalNode) -> None:
        path = os.path.join(node.directory, KEY_STORE)
        hosts = _hosts_of(node)
        if os.path.exists(path):
            found = read_certificate(path)
            if set(hosts) <= set(found.hosts) and found.days_left(self._now) >= DAYS_LEFT_MIN:
                return
            hosts = list(dict.fromkeys([*hosts, *found.hosts]))
            if self._authority is None and found.days_left(self._now) >= 0:
                return
        if self._authority is None:
            raise CertificateError(f"{path}: a certificate is needed, and {AUTHORITY_KEY} is not in {self._directory}")
        issue(self._authority, path, _name_of(node), hosts, self._now)

    # -- the first user -----------------------------------------------------------------------------------------------

    def introduce_admin(self) -> None:
        """Set the password of `admin`, unless an earlier start did; return when all brokers know it."""
        if os.path.exists(self.client_properties):
            return
        password = secrets.token_urlsafe(24)
        options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{ADMIN}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.path.join(self._directory, TRUST_STORE),
        }
        brokers = self._cluster.brokers
        addresses = ",".join(f"{host}:{port}" for host, port in (broker.checked_at for broker in brokers))
        with Admin(addresses, options=brokers[0].client_options) as admin:
            admin.users.set_password(ADMIN, password, mechanism=MECHANISM)
        for broker in brokers:
            _wait_for_login(broker, options)
        write_private(self.client_properties, "".join(f"{name}={value}\n" for name, value in options.items()))


def _name_of(node: LocalNode) -> str:
    return os.path.basename(node.directory)  # node-1, controller-1


def _hosts_of(node: LocalNode) -> list[str]:
    """The names and addresses under which this node may be reached."""
    hosts = ["localhost", NODE_HOST, "::1"]
    if not is_wildcard(node.host):
        hosts.append(node.host)
    elif node.is_broker:
        hosts += _hosts_of_machine()
    advertised = node.properties.get("advertised.listeners") or properties_of(node.directory).get(
        "advertised.listeners", ""
    )
    for listener in filter(None, advertised.split(",")):
        hosts.append(listener.partition("://")[2].rpartition(":")[0].strip("[]"))
    return list(dict.fromkeys(filter(None, hosts)))


def _hosts_of_machine() -> list[str]:
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return [name, *(str(address[0]).partition("%")[0] for *_, address in found)]
    return [name]


def _wait_for_login(broker: LocalNode, options: dict[str, str]) -> None:
    """Wait until the broker has replayed the user."""
    host = NODE_HOST if is_wildcard(broker.host) else broker.host
    deadline = time.monotonic() + _LOGIN_S
    while True:
        try:
            Connection(host, broker.port, timeout=5.0, login=login_from(options), tls=tls_from(options)).close()
        except ClientError as error:
            if time.monotonic() > deadline:
                raise NodeFailed(f"{broker.title} does not accept the login of {ADMIN}: {error}") from None
            time.sleep(_POLL_S)
        else:
            return
