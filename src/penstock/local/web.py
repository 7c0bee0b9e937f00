"""The web servers beside the brokers of one machine: nodes of the schema registry, and the console.

Both are ready when they answer a request.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Container, Sequence

from penstock.local.ports import is_free
from penstock.local.process import LocalProcess

REGISTRY_DIRECTORY = "registry"
CONSOLE_DIRECTORY = "console"
CONSOLE_PORT = 8080
_CONSOLE_PORTS = 100


class LocalWebServer(LocalProcess):
    probe = "/"
    """A path that the server answers as soon as it is ready."""

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def is_ready(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=2.0)
        try:
            connection.request("GET", self.probe)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class LocalRegistry(LocalWebServer):
    def __init__(
        self, directory: str, *, bootstrap: str, host: str, port: int, number: int = 1, arguments: Sequence[str] = ()
    ) -> None:
        """`bootstrap` may refer to client settings; `arguments` are further ones of `penstock registry`."""
        super().__init__("registry" if number == 1 else f"registry {number}", directory, host=host, port=port)
        self._bootstrap = bootstrap
        self._arguments = list(arguments)

    def command(self) -> list[str]:
        where = ["-b", self._bootstrap, "--listen", self.address]
        return [sys.executable, "-m", "penstock", "registry", *where, *self._arguments]


def console_port(host: str, taken: Container[int] = ()) -> int | None:
    """The first free port from 8080 on; None if none of a hundred is free."""
    ports = range(CONSOLE_PORT, CONSOLE_PORT + _CONSOLE_PORTS)
    return next((port for port in ports if port not in taken and is_free(port, host)), None)


class LocalConsole(LocalWebServer):
    probe = "/static/console.css"

    def __init__(
        self,
        directory: str,
        *,
        bootstrap: str,
        host: str,
        port: int,
        registry: str | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """`bootstrap` may refer to client settings; `registry` is the URL of a schema registry; `arguments` are further
        ones of `penstock console`."""
        super().__init__("console", directory, host=host, port=port)
        self._bootstrap = bootstrap
        self._registry = registry
        self._arguments = list(arguments)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "penstock", "console", "-b", self._bootstrap, "--listen", self.address),
            *("--history", os.path.join(self.directory, "history.sqlite")),
            *("--audit-log", os.path.join(self.directory, "audit.log")),
            *(("--registry", self._registry) if self._registry is not None else ()),
            *self._arguments,
        ]
