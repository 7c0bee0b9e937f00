"""Runs a console in this process until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import uvicorn

from penstock.client.errors import ClientError
from penstock.console.history import History
from penstock.console.server.app import Console, Shared
from penstock.console.server.audit import Audit
from penstock.console.server.clusters import Clusters
from penstock.console.server.guard import known_names
from penstock.console.server.sessions import COOKIE
from penstock.console.settings import ConsoleSettings, check
from penstock.console.views.clusters import NamedCluster, parse_clusters

_GRACE_S = 3


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves signals to us: a request to stop is not a failure."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()


def serve(settings: ConsoleSettings, ready: Callable[[str], None]) -> None:
    """Returns when SIGTERM or SIGINT came. `ready` gets the address. ClientError if it cannot listen there."""
    check(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((settings.host, settings.port))
        except OSError as error:
            raise ClientError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
        asyncio.run(_serve(settings, listening, ready))


async def _serve(settings: ConsoleSettings, listening: socket.socket, ready: Callable[[str], None]) -> None:
    port = listening.getsockname()[1]
    with _shared(settings) as shared:
        await _run(settings, _application(settings, shared, port), listening, port, ready)


@contextmanager
def _shared(settings: ConsoleSettings) -> Iterator[Shared]:
    from penstock.console.observe.registry import schema_decoder

    names = tuple(each.name for each in parse_clusters(settings.clusters))
    history, audit = History(settings.history), Audit(settings.audit)
    try:
        yield Shared(history, audit, schema_decoder(settings.registry), names)
    finally:
        history.close()
        audit.close()


def _application(settings: ConsoleSettings, shared: Shared, port: int) -> Console | Clusters:
    clusters = parse_clusters(settings.clusters)
    consoles = [
        Console(
            replace(settings, bootstrap=each.bootstrap),
            shared,
            each.name,
            # Cookies of a host are shared by its ports, and by the clusters of a console.
            "-".join(filter(None, (COOKIE, str(port), each.name))),
        )
        for each in clusters or [NamedCluster("", settings.bootstrap)]
    ]
    return Clusters(consoles, known_names(settings)) if clusters else consoles[0]


async def _run(
    settings: ConsoleSettings,
    console: Console | Clusters,
    listening: socket.socket,
    port: int,
    ready: Callable[[str], None],
) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.certificate is None else "https"
    options: dict[str, Any] = {}
    if settings.certificate is not None:
        options = {"ssl_certfile": settings.certificate, "ssl_keyfile": settings.key}
    config = uvicorn.Config(
        console.app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        **options,
    )
    logging.basicConfig(level=logging.WARNING, format="penstock console: %(message)s")
    server = _Server(config, lambda: ready(f"{scheme}://{host}:{port}"))

    def stop() -> None:
        server.should_exit = True
        console.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await server.serve([listening])
