"""The router of broker listeners, with fast paths for the most frequent requests."""

from __future__ import annotations

import asyncio
import struct

from penstock.broker.apis.fetch_plain import PlainFetch
from penstock.broker.apis.produce_plain import PlainProduce
from penstock.broker.net.connection import Connection
from penstock.broker.net.latency import Latencies
from penstock.broker.net.router import Router
from penstock.broker.net.server import RunHandler
from penstock.security.authorizer import Authorizer

_read_start = struct.Struct(">hhi").unpack_from


class BrokerRouter(Router):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        authorizer: Authorizer,
        latencies: Latencies,
        *,
        plain_produce: PlainProduce,
        handle_run: RunHandler,
        plain_fetch: PlainFetch,
    ) -> None:
        """`handle_run`: handles several requests at once if the requests at a position are of that kind."""
        super().__init__(loop, authorizer, latencies, forwards=True)
        self.handle_run = handle_run
        self._plain_produce = plain_produce.handle
        self._plain_fetch = plain_fetch.handle
        self._fetch = latencies.of("FetchConsumer")

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        frame = view[start:end]
        api_key, version, correlation_id = _read_start(frame)
        if api_key == 0 and 3 <= version <= 13 and self._plain_produce(connection, frame, version, correlation_id):
            return
        if api_key == 1 and 12 <= version <= 18:
            connection.latency = self._fetch
            if self._plain_fetch(connection, frame, version, correlation_id):
                return
        self.handle_message(connection, view, start, end)
