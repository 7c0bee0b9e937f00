"""Runs a node: loads the topic, then listens, then says so; ends when it gets SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from penstock.client.errors import BadSetting
from penstock.registry.kafka.election import Identity
from penstock.registry.node import NodeSettings, RegistryNode
from penstock.registry.web.app import Application
from penstock.registry.web.passwords import Passwords
from penstock.registry.web.roles import Roles

_KEEP_ALIVE_S = 75  # longer than clients keep a connection, so that none sends into a closing one
_SHUTDOWN_S = 5


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 8081
    advertised: tuple[str, int] | None = None
    """Where other nodes reach this one; by default where it listens."""
    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    """The certificates that other nodes are checked against."""
    roles: str | None = None
    """The file of roles; with it, every request needs a user and a password."""
    mechanism: str | None = None
    insecure: bool = False

    def check(self) -> None:
        """BadSetting for what would be unsafe or makes no sense."""
        if (self.certificate is None) != (self.key is None):
            raise BadSetting("--certificate and --key belong together")
        if self.insecure or _is_loopback(self.host):
            return
        if self.certificate is None or self.roles is None:
            raise BadSetting(
                f"{self.host} is reachable from other machines: give --certificate, --key and --roles, or --insecure "
                "to let everybody read and write schemas"
            )


class _Server(uvicorn.Server):
    """Signals are ours: uvicorn would raise them again at the end, and the process would not end with status 0."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(settings: NodeSettings, server: ServerSettings, ready: Callable[[str], None]) -> None:
    """Serve until a signal. `ready` gets the URL when the node answers."""
    server.check()
    logging.getLogger("penstock.registry").setLevel(logging.INFO)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(settings, server, ready))


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(settings: NodeSettings, server: ServerSettings, ready: Callable[[str], None]) -> None:
    with _bound(server.host, server.port) as listener:
        port: int = listener.getsockname()[1]
        scheme = "http" if server.certificate is None else "https"
        node = RegistryNode(settings, Identity(*(server.advertised or (server.host, port)), scheme))
        passwords = None
        if server.roles is not None:
            passwords = Passwords(settings.bootstrap, server.mechanism, timeout=settings.timeout_s)
        application = Application(
            node,
            passwords=passwords,
            roles=None if server.roles is None else Roles.read(server.roles),
            forward_tls=ssl.create_default_context(cafile=server.authority) if scheme == "https" else None,
        )
        url = Identity(server.host, port, scheme).url
        config = uvicorn.Config(
            application,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            ssl_certfile=server.certificate,
            ssl_keyfile=server.key,
        )
        http = _Server(config, lambda: ready(url))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(node.run())
            tasks.create_task(_listen(node, http, listener, stop, running))


async def _listen(
    node: RegistryNode, http: _Server, listener: socket.socket, stop: asyncio.Event, running: asyncio.Task[None]
) -> None:
    """Answer requests from when the topic is loaded until a stop is requested; then end the node, too."""
    stopping = asyncio.create_task(stop.wait())
    loading = asyncio.create_task(node.loaded.wait())
    try:
        with _collection_paused():
            await asyncio.wait({stopping, loading}, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            serving = asyncio.create_task(http.serve(sockets=[listener]))
            try:
                await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                http.should_exit = True
                await serving
    finally:
        stopping.cancel()
        loading.cancel()
        running.cancel()


@contextlib.contextmanager
def _collection_paused() -> Iterator[None]:
    """What is loaded stays: looking through it again and again would only take time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _bound(host: str, port: int) -> socket.socket:
    """The socket to listen on: an address in use is an error at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BadSetting(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(512)
    except OSError as error:
        bound.close()
        raise BadSetting(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return bound


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
