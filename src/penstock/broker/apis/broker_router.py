"""The router of broker listeners, with fast paths for the most frequent requests."""

from __future__ import annotations

import asyncio
import struct

from penstock.broker.apis.fetch_follower_plain import PlainFollowerFetch
from penstock.broker.apis.fetch_plain import PlainFetch
from penstock.broker.apis.produce_plain import PlainProduce
from penstock.broker.net.connection import Connection
from penstock.broker.net.latency import Latencies
from penstock.broker.net.router import Router
from penstock.broker.net.server import RunHandler
from penstock.broker.net.throttling import Meter, Throttling, is_exempt
from penstock.security.authorizer import Authorizer

PRODUCE, FETCH = 0, 1

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
        plain_follower_fetch: PlainFollowerFetch,
        throttling: Throttling,
    ) -> None:
        """`handle_run`: handles several requests at once if the requests at a position are of that kind."""
        super().__init__(loop, authorizer, latencies, forwards=True)
        self.handle_run = handle_run
        self._plain_produce = plain_produce.handle
        self._plain_fetch = plain_fetch.handle
        self._plain_follower_fetch = plain_follower_fetch.handle
        self._fetch = latencies.of("FetchConsumer")
        self._throttling = throttling
        self._quotas = throttling.quotas

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        frame = view[start:end]
        api_key, version, correlation_id = _read_start(frame)
        if (
            api_key == FETCH
            and connection.is_of_follower
            and 15 <= version <= 18
            and self._plain_follower_fetch(connection, frame, version, correlation_id)
        ):
            return  # quotas are for clients
        if self._quotas.is_on:
            meter = self._meter(connection, frame, api_key, version)
            if meter is not None:
                self._handle_metered(connection, view, start, end, meter)
                return
        if api_key == 0 and 3 <= version <= 13 and self._plain_produce(connection, frame, version, correlation_id):
            return
        if api_key == 1 and 12 <= version <= 18:
            connection.latency = self._fetch
            if self._plain_fetch(connection, frame, version, correlation_id):
                return
        self.handle_message(connection, view, start, end)

    def _meter(self, connection: Connection, frame: memoryview, api_key: int, version: int) -> Meter | None:
        """None for a request that no quota applies to."""
        limits = self._throttling.limits_of(connection, frame)
        if not limits.is_limited or is_exempt(api_key, version):
            return None
        bandwidth = limits.produce if api_key == PRODUCE else limits.fetch if api_key == FETCH else None
        if bandwidth is None and limits.request is None:
            return None
        return Meter(self._throttling, connection, limits)

    def _handle_metered(self, connection: Connection, view: memoryview, start: int, end: int, meter: Meter) -> None:
        frame = view[start:end]
        api_key, version, correlation_id = _read_start(frame)
        if api_key == PRODUCE and 3 <= version <= 13:
            throttle_ms = meter.produced(len(frame))
            # A plain response cannot say that the client is throttled, and its time is not measured.
            is_plain = not throttle_ms and not meter.limits_time
            if is_plain and self._plain_produce(connection, frame, version, correlation_id):
                return
        self.handle_message(connection, view, start, end, meter)
