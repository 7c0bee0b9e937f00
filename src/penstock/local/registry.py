"""A node of the schema registry as a real process, beside the brokers of one machine.

DIR/pid                 the process id, while it runs
DIR/server.log          everything the process prints
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Sequence

from penstock.local.node import LocalNode

DIRECTORY = "registry"


class LocalRegistry(LocalNode):
    def __init__(
        self, directory: str, *, bootstrap: str, host: str, port: int, number: int = 1, arguments: Sequence[str] = ()
    ) -> None:
        """`bootstrap` may refer to client settings; `arguments` are further ones of `penstock registry`."""
        super().__init__(number, directory, host=host, port=port, roles="registry")
        self._bootstrap = bootstrap
        self._arguments = list(arguments)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def title(self) -> str:
        return "registry" if self.node_id == 1 else f"registry {self.node_id}"

    @property
    def stops_after(self) -> int:
        return 0

    def command(self) -> list[str]:
        where = ["-b", self._bootstrap, "--listen", self.address]
        return [sys.executable, "-m", "penstock", "registry", *where, *self._arguments]

    def write_properties(self) -> None:
        """It has none: its settings are arguments."""
        os.makedirs(self.directory, exist_ok=True)

    def is_ready(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=2.0)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
