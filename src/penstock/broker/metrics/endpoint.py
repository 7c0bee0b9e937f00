"""The HTTP endpoint for Prometheus: GET /metrics, on the node's own loop.

It implements as little HTTP as that needs: one request per connection, no body, answered and closed. A client can cost
the node only a little: the number of connections is limited, a request head has a maximum size and a timeout, an unread
response is dropped with its connection, and concurrent requests share one collection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final, cast

from penstock.broker.metrics.exposition import CONTENT_TYPE
from penstock.broker.metrics.loop_lag import LoopLag
from penstock.broker.metrics.protection import Protection
from penstock.broker.net.latency import Latency
from penstock.model.errors import ErrorCode, KafkaError

logger = logging.getLogger("penstock.metrics")

PATH: Final = "/metrics"
HEAD_BYTES_MAX: Final = 8192
CONNECTIONS_MAX: Final = 32
REQUEST_S: Final = 5.0
RESPONSE_S: Final = 15.0

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class MetricsEndpoint:
    def __init__(
        self,
        address: tuple[str, int] | None,
        loop: asyncio.AbstractEventLoop,
        loop_lag: Latency,
        collect: Callable[[], Coroutine[object, object, bytes]],
        protection: Protection,
    ) -> None:
        self._address = address
        self.protection = protection
        self._loop = loop
        self._collect = collect
        self._server: asyncio.Server | None = None
        self._lag = LoopLag(loop, loop_lag)
        self._collecting: asyncio.Task[bytes] | None = None
        self.connections: set[HttpConnection] = set()
        self.port = 0

    async def open(self) -> None:
        if self._address is None:
            return
        host, port = self._address
        loop = self._loop
        try:
            self._server = await loop.create_server(
                lambda: HttpConnection(self, loop),
                host or None,
                port,
                ssl=self.protection.context,
                ssl_handshake_timeout=REQUEST_S if self.protection.uses_tls else None,
            )
        except OSError as error:
            where = f"{host or '*'}:{port}"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"cannot listen on {where} (penstock.metrics.listener): {error.strerror or error}",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._lag.start()
        shown = f"[{host}]" if ":" in host else host or "*"
        logger.info("metrics at http%s://%s:%d%s", "s" if self.protection.uses_tls else "", shown, self.port, PATH)

    async def close(self) -> None:
        self._lag.close()
        if self._collecting is not None:
            self._collecting.cancel()
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.abort()
            await self._server.wait_closed()
            self._server = None

    def collecting(self) -> asyncio.Task[bytes]:
        """The collection in progress, or a new one."""
        if self._collecting is None:
            self._collecting = self._loop.create_task(self._collect())
            self._collecting.add_done_callback(self._collected)
        return self._collecting

    def _collected(self, task: asyncio.Task[bytes]) -> None:
        self._collecting = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("metrics could not be collected", exc_info=task.exception())


class HttpConnection(asyncio.Protocol):
    def __init__(self, endpoint: MetricsEndpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._head = bytearray()
        self._is_answering = False
        self._with_body = True
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._endpoint.connections) >= CONNECTIONS_MAX:
            self._answer(503, "too many connections\n")
        self._endpoint.connections.add(self)
        self._set_deadline(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.connections.discard(self)
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_answering:
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= HEAD_BYTES_MAX:
            return
        if end > HEAD_BYTES_MAX or end < 0:
            self._answer(431, "the head of a request has at most 8 KiB\n")
            return
        self._respond(bytes(self._head[:end]))

    def _respond(self, head: bytes) -> None:
        parts = head.partition(b"\r\n")[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            self._answer(400, "this is the metrics endpoint of a node, and speaks HTTP/1.1\n")
            return
        method, target, _ = parts
        self._with_body = method != b"HEAD"
        if method not in (b"GET", b"HEAD"):
            self._answer(405, "GET it\n")
        elif not self._endpoint.protection.allows(head):
            self._answer(401, "the metrics of this node need a password or a token\n")
        elif target.split(b"?")[0] == PATH.encode():
            self._is_answering = True
            self._set_deadline(RESPONSE_S)
            self._endpoint.collecting().add_done_callback(self._collected)
        else:
            self._answer(404, f"metrics are at {PATH}\n")

    def _collected(self, task: asyncio.Task[bytes]) -> None:
        if task.cancelled():
            self.abort()
        elif task.exception() is not None:
            self._answer(500, "metrics could not be collected; see the node's log\n")
        else:
            self._send(200, CONTENT_TYPE, task.result())

    def _answer(self, status: int, text: str) -> None:
        self._send(status, "text/plain; charset=utf-8", text.encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self._is_answering = True
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n{self._more_headers(status)}\r\n"
        )
        self._transport.write(head.encode() + (body if self._with_body else b""))
        self._set_deadline(RESPONSE_S)
        self._transport.close()  # after the write completes

    def _more_headers(self, status: int) -> str:
        if status == 401:
            return self._endpoint.protection.challenge
        return "Allow: GET, HEAD\r\n" if status == 405 else ""

    def _set_deadline(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
