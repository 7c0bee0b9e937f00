"""One node as a real process.

    DIR/server.properties   its settings
    DIR/data/               its log directory

A broker is ready when it answers ApiVersions, and Metadata that includes itself; a controller when it answers
ApiVersions. What the check needs is imported when it is made: while the processes start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from penstock.local.process import LocalProcess
from penstock.local.properties import merge_properties

CONTROLLER_LISTENER = "CONTROLLER"


class LocalNode(LocalProcess):
    def __init__(
        self,
        node_id: int,
        directory: str,
        *,
        host: str,
        port: int,
        roles: str = "broker,controller",
        properties: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        client_options: Mapping[str, str] | None = None,
        cores: Sequence[int] = (),
    ) -> None:
        """`properties` override server.properties; `defaults` apply only to settings that it lacks.

        `client_options`: security settings of clients, for the check whether a broker is ready.
        """
        self.node_id = node_id
        self.roles = roles
        self.is_broker = "broker" in roles
        self.stops_after = 1 if self.is_broker else 2
        title = f"{'node' if self.is_broker else 'controller'} {node_id}"
        super().__init__(title, directory, host=host, port=port, wrapper=wrapper, environment=environment, cores=cores)
        self.properties = dict(properties or {})
        self.defaults = dict(defaults or {})
        self.client_options = dict(client_options or {})
        self.checked_at = (host, port)
        """Where `client_options` lead to an answer, for the check whether the node is ready."""

    @property
    def properties_path(self) -> str:
        return os.path.join(self.directory, "server.properties")

    @property
    def data_path(self) -> str:
        return os.path.join(self.directory, "data")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "penstock", "server", self.properties_path]

    def is_ready(self) -> bool:
        """Whether clients can use the node: a broker must be in the list of brokers that it reports."""
        if self.is_broker:
            return self.node_id in self.known_brokers()
        from penstock.client.errors import ClientError
        from penstock.client.wire.connection import Connection
        from penstock.client.wire.login import tls_from

        try:
            Connection(*self.checked_at, timeout=2.0, tls=tls_from(self.client_options)).close()
        except ClientError:
            return False
        return True

    def known_brokers(self) -> set[int]:
        """Return the brokers that this one reports to clients; none if it does not answer."""
        from penstock.client.errors import ClientError
        from penstock.client.wire.connection import Connection
        from penstock.client.wire.login import login_from, tls_from
        from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse

        try:
            login, tls = login_from(self.client_options), tls_from(self.client_options)
            with Connection(*self.checked_at, timeout=2.0, login=login, tls=tls) as connection:
                metadata = connection.request(MetadataRequest(topics=[]), MetadataResponse)
        except ClientError:
            return set()
        return {broker.node_id for broker in metadata.brokers}

    def own_properties(self) -> dict[str, str]:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return {
            "process.roles": self.roles,
            "node.id": str(self.node_id),
            "listeners": f"{'PLAINTEXT' if self.is_broker else CONTROLLER_LISTENER}://{host}:{self.port}",
            "log.dirs": self.data_path,
            **self.properties,
        }

    def write_properties(self) -> None:
        ours = self.own_properties()
        try:
            with open(self.properties_path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            text = ""
        with open(self.properties_path, "w", encoding="utf-8") as file:
            file.write(merge_properties(text, ours, self.defaults))
