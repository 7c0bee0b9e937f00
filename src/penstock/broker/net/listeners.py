"""The listeners of a node: those for clients and other brokers, and those of the metadata quorum.

They are bound early, which reserves the ports and makes them known. They accept connections once the node can answer:
controller listeners from the start, because the quorum cannot form otherwise; broker listeners once the broker is
unfenced.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.broker.net.connection import Connection, Gate
from penstock.broker.net.latency import Latency
from penstock.broker.net.server import ConnectionLimits, FrameHandler, Listener, RunHandler
from penstock.broker.net.throttling import Throttling
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages import broker_registration
from penstock.quotas.entity import Quotas
from penstock.raft.voters import VoterEndpoint
from penstock.settings.listeners import SECURITY_PROTOCOLS, TLS_PROTOCOLS, Endpoint
from penstock.settings.live import LiveSettings
from penstock.settings.tls import TlsSettings, tls_of_listener
from penstock.tls import check, open_contexts, renew

if TYPE_CHECKING:
    from penstock.tls.contexts import TlsContexts

logger = logging.getLogger("penstock.node")


class Listeners:
    def __init__(
        self,
        settings: LiveSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        after_reads: Callable[[], None],
        plain_latency: Latency,
        gates_of: Callable[[Endpoint], Callable[[Connection], Gate] | None],
    ) -> None:
        """`after_reads` runs after all connections that were readable together have been read. `gates_of`: what makes
        the gates of a listener whose clients must authenticate themselves."""
        self._gates_of = gates_of
        self._settings = settings
        self._loop = loop
        self._after_reads = after_reads
        self._plain_latency = plain_latency
        static = settings.static
        self.throttling = Throttling(static, loop.time)
        self.limits = ConnectionLimits(
            static.max_connections,
            static.max_connections_per_ip,
            static.connection_overrides,
            static.penstock_max_parked_requests,
        )
        self.of_brokers: list[Listener] = []
        self.of_controllers: list[Listener] = []
        self._receive_buffer: bytearray | None = None

    @property
    def all(self) -> list[Listener]:
        return [*self.of_brokers, *self.of_controllers]

    def settings_changed(self) -> None:
        settings = self._settings.now
        self.limits.total_max = settings.max_connections
        self.limits.per_address_max = settings.max_connections_per_ip
        self.limits.per_address_overrides = settings.connection_overrides

    def set_quotas(self, quotas: Quotas) -> None:
        self.throttling.set(quotas)
        for listener in self.of_brokers:
            for connection in listener.connections:
                connection.metered = None
                connection.produce_target = None

    def hang_up(self) -> None:
        """Close the connections of all clients of the broker; they may reconnect.

        Followers stay connected: they learn from the metadata which leader to follow.
        """
        for listener in self.of_brokers:
            for connection in list(listener.connections):
                if not connection.is_of_follower:
                    connection.close()

    def rewritten(self) -> None:
        """Committed records were changed on this broker, which may have been on their way to clients."""
        for listener in self.of_brokers:
            for connection in list(listener.connections):
                connection.rewritten()

    async def open_brokers(self, handle: FrameHandler, handle_run: RunHandler) -> None:
        for endpoint in self._settings.static.broker_endpoints:
            throttle_ms = self.throttling.connection_throttle_ms
            self.of_brokers.append(await self._open(endpoint, handle, handle_run, throttle_ms))

    async def open_controllers(self, handle: FrameHandler) -> None:
        if self._settings.static.is_controller:
            for endpoint in self._settings.static.controller_endpoints:
                # Without a quota on connections: nodes must always reach the quorum.
                self.of_controllers.append(await self._open(endpoint, handle, _no_run, lambda host: 0))

    async def _open(
        self,
        endpoint: Endpoint,
        handle: FrameHandler,
        handle_run: RunHandler,
        connection_throttle_ms: Callable[[str], int],
    ) -> Listener:
        settings = self._settings.now
        listener = Listener(
            endpoint.name,
            loop=self._loop,
            handle=handle,
            handle_run=handle_run,
            after_reads=self._after_reads,
            limits=self.limits,
            request_bytes_max=settings.socket_request_max_bytes,
            small_request_bytes_max=settings.penstock_max_small_request_bytes,
            parked_max=settings.queued_max_requests,
            socket_buffers=self._socket_buffers(),
            plain_latency=self._plain_latency,
            connection_throttle_ms=connection_throttle_ms,
            receive_buffer=self._receive_buffer,
            new_gate=self._gates_of(endpoint),
            tls=self._tls_of(endpoint),
            failure_delay_s=settings.connection_failed_authentication_delay_ms / 1000,
            is_protected=self._is_protected(endpoint),
        )
        self._receive_buffer = listener.receive_buffer
        backlog = settings.socket_listen_backlog_size
        await _listen(listener.open(endpoint.host, endpoint.port, backlog=backlog), endpoint)
        return listener

    def _is_protected(self, endpoint: Endpoint) -> bool:
        """Whether clients have a listener of their own, and this is one of those between nodes."""
        static = self._settings.static
        if endpoint.name == static.inter_broker_listener:
            return len(static.broker_endpoints) > 1
        return endpoint in static.controller_endpoints and bool(static.broker_endpoints)

    def _tls_of(self, endpoint: Endpoint) -> TlsContexts | None:
        if endpoint.security_protocol not in TLS_PROTOCOLS:
            return None
        return open_contexts(self._tls_settings(endpoint.name), f"listener {endpoint.name}")

    def _tls_settings(self, listener: str, properties: Mapping[str, str] | None = None) -> TlsSettings:
        with_sasl = self._settings.now.protocol_map[listener].startswith("SASL_")
        properties = self._settings.layers.effective if properties is None else properties
        return tls_of_listener(listener, properties, with_sasl=with_sasl)

    @property
    def uses_tls(self) -> bool:
        return any(listener.tls is not None for listener in self.all)

    def check_certificates(self, properties: Mapping[str, str], done: Callable[[KafkaError | None], None]) -> None:
        """Call `done` with the reason why the listeners could not use the key and trust stores that these properties
        name; None if they can. Reading the stores takes a thread."""

        def checked(future: asyncio.Future[None]) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, KafkaError):
                logger.error("the key and trust stores cannot be checked", exc_info=error)
                error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            done(error)

        self._loop.run_in_executor(None, self._check_certificates, properties).add_done_callback(checked)

    def _check_certificates(self, properties: Mapping[str, str]) -> None:
        between_brokers = None if self._settings.static.is_alone else self._settings.static.inter_broker_listener
        for listener in self.all:
            if listener.tls is not None:
                wanted = self._tls_settings(listener.name, properties)
                if wanted != self._tls_settings(listener.name):
                    trusts_itself = listener.name == between_brokers
                    check(listener.tls, wanted, f"listener {listener.name}", trusts_itself=trusts_itself)

    def renew(self) -> None:
        """Use changed key and trust stores for new connections."""
        for listener in self.all:
            if listener.tls is not None:
                renew(listener.tls, self._tls_settings(listener.name), f"listener {listener.name}")

    def _socket_buffers(self) -> dict[int, int]:
        settings = self._settings.now
        sizes = {
            socket.SO_SNDBUF: settings.socket_send_buffer_bytes,
            socket.SO_RCVBUF: settings.socket_receive_buffer_bytes,
        }
        return {option: size for option, size in sizes.items() if size >= 0}

    @staticmethod
    async def serve(listeners: Sequence[Listener]) -> None:
        for listener in listeners:
            await _listen(listener.serve(), listener.name)
            logger.info("listening on %s, port %d", listener.name, listener.port)

    # -- advertised addresses ---------------------------------------------------------------------------------------

    def registered_by_broker(self, local_host: str | None) -> list[broker_registration.Listener]:
        """`local_host`: the address under which other nodes know this machine, for wildcard listeners."""
        host = local_host or socket.gethostname()
        return [
            broker_registration.Listener(
                name=endpoint.name,
                host=host if endpoint.wildcard else endpoint.host,
                port=self._port(endpoint, self.of_brokers),
                security_protocol=SECURITY_PROTOCOLS[endpoint.security_protocol],
            )
            for endpoint in self._settings.now.advertised_endpoints
        ]

    def registered_by_controller(self) -> list[broker_registration.Listener]:
        protocols = self._settings.now.protocol_map
        return [
            broker_registration.Listener(
                name=endpoint.listener,
                host=endpoint.host,
                port=endpoint.port,
                security_protocol=SECURITY_PROTOCOLS[protocols[endpoint.listener]],
            )
            for endpoint in self.quorum_endpoints()
        ]

    def quorum_endpoints(self) -> tuple[VoterEndpoint, ...]:
        """Where other nodes reach this controller: as advertised, as listed among the voters, or as bound."""
        settings = self._settings.now
        if not settings.is_controller:
            return ()
        listed = {voter.node_id: voter.host for voter in settings.quorum_voters}
        return tuple(
            VoterEndpoint(
                endpoint.name,
                listed.get(settings.node_id, socket.gethostname()) if endpoint.wildcard else endpoint.host,
                self._port(endpoint, self.of_controllers),
            )
            for endpoint in settings.advertised_controller_endpoints
        )

    @staticmethod
    def _port(endpoint: Endpoint, listeners: Sequence[Listener]) -> int:
        if endpoint.port:
            return endpoint.port
        return next(listener.port for listener in listeners if listener.name == endpoint.name)


async def _listen(step: Coroutine[object, object, None], where: object) -> None:
    try:
        await step
    except OSError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"cannot listen on {where}: {error.strerror or error}") from error


def _no_run(connection: Connection, view: memoryview, position: int, received: int) -> int:
    """Controllers receive no requests that are worth handling together."""
    return position
