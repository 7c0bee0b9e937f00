"""Applies the quotas of clients to their requests and connections.

Nothing here costs anything while no quota is set: the router checks `ClientQuotas.is_on`, once a request. While quotas
are set, a connection remembers the limits of its client (`MeteredClient`), so that clients without limits keep the fast
paths. Changed quotas make all connections forget them.

A request of a client with limits has a `Meter`. Bytes produced are counted when the request arrives, bytes fetched and
the time of the request when it is answered. A client above its quota is answered at once, and told for how long it is
throttled; its connection is not read from meanwhile (`Connection.throttle`).

The requests of other nodes that only nodes send are not metered: a quota must not slow replication down.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.broker.net.connection import Connection
from penstock.broker.net.latency import now_ns
from penstock.broker.net.request import Request
from penstock.controller.result import Result
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import ApiKey
from penstock.quotas.client_quotas import ClientLimits, ClientQuotas
from penstock.quotas.entity import Quotas
from penstock.quotas.levels import Limit
from penstock.quotas.rate import Window
from penstock.security.principal import Principal
from penstock.settings.quotas import QuotaSettings

PERCENT_PER_NS: Final = 100 / 1e9
CLIENT_ID_AT: Final = 8
NODES_ADD_PARTITIONS_SINCE: Final = 4  # AddPartitionsToTxn: clients send older versions

Response = TypeVar("Response", bound=Any)

_read_size = struct.Struct(">h").unpack_from


def principal_of(connection: Connection) -> Principal:
    """Who is at the other end of a connection."""
    return connection.principal


class MeteredClient:
    """The client of a connection, and its limits."""

    __slots__ = ("client", "limits", "principal")

    def __init__(self, client: bytes, principal: Principal, limits: ClientLimits) -> None:
        self.client = client  # the client id as it was received
        self.principal = principal
        self.limits = limits


class Throttling:
    def __init__(self, settings: QuotaSettings, now: Callable[[], float]) -> None:
        """`now`: a monotonic clock, in seconds."""
        self.quotas = ClientQuotas(
            Window(settings.quota_window_num, settings.quota_window_size_seconds * 1000),
            Window(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000),
        )
        self._now = now

    def now_ms(self) -> int:
        return int(self._now() * 1000)

    def set(self, quotas: Quotas) -> None:
        self.quotas.set(quotas)

    def limits_of(self, connection: Connection, frame: memoryview) -> ClientLimits:
        """The limits of the client that sent this request."""
        end = CLIENT_ID_AT + 2
        if len(frame) >= end:
            end += max(0, _read_size(frame, CLIENT_ID_AT)[0])
        client, principal = frame[CLIENT_ID_AT:end], principal_of(connection)
        metered = connection.metered
        if metered is None or metered.client != client or metered.principal != principal:
            limits = self.quotas.limits_of(principal.name, str(client[2:], "utf-8", "replace"))
            connection.metered = metered = MeteredClient(bytes(client), principal, limits)
            connection.produce_target = None  # requests of the other client must not be handled as a run
        return metered.limits

    def connection_throttle_ms(self, host: str) -> int:
        """How long to hold a new connection before it is closed; 0 to accept it."""
        if not self.quotas.limits_connections:
            return 0
        return self.quotas.connection_throttle_ms(host, self.now_ms())

    def mutations(self, request: Request, *, strict_since: int) -> MutationCharge:
        """What a request that creates or deletes partitions is charged.

        Since the version `strict_since`, a client above its quota is refused; older ones are only throttled.
        """
        limit = None
        # Without a connection, it is this node itself that asks.
        if self.quotas.limits_mutations and request.connection is not None:
            limit = self.quotas.mutation_limit(request.principal.name, request.client_id or "")
        return MutationCharge(self, request, limit, is_strict=request.version >= strict_since)


class Meter:
    """What one request of a client with limits costs."""

    __slots__ = ("_began_ns", "_connection", "_is_settled", "_limits", "_spent_ns", "_throttle_ms", "_throttling")

    def __init__(self, throttling: Throttling, connection: Connection, limits: ClientLimits) -> None:
        self._throttling = throttling
        self._connection = connection
        self._limits = limits
        self._throttle_ms = 0
        self._began_ns = now_ns()
        self._spent_ns = 0
        self._is_settled = False

    def produced(self, size: int) -> int:
        """Count a produce request of this size; returns the throttle time, for which the connection is muted now."""
        limit = self._limits.produce
        if limit is None:
            return 0
        throttling = self._throttling
        now_ms = throttling.now_ms()
        self._throttle_ms = throttling.quotas.produce.record(limit, size, now_ms)
        if self._throttle_ms:
            throttling.quotas.produce.throttled(limit, self._throttle_ms, now_ms)
            self._connection.throttle(self._throttle_ms)
        return self._throttle_ms

    def fetch_max_bytes(self, wanted: int) -> int:
        """The most that a fetch may return: more would be above the quota, even if nothing was fetched before."""
        limit = self._limits.fetch
        return wanted if limit is None else min(wanted, int(self._throttling.quotas.fetch.window_value(limit)))

    def fetched(self, size: int) -> int:
        """Count a fetch with a response of this size; returns the throttle time.

        If that is not 0, the response must be empty, and its size is not counted.
        """
        limit, quota = self._limits.fetch, self._throttling.quotas.fetch
        if limit is None:
            return self.settle()
        now_ms = self._throttling.now_ms()
        bandwidth_ms = quota.record(limit, size, now_ms)
        throttle_ms = max(bandwidth_ms, self.settle())
        if throttle_ms:
            quota.unrecord(limit, size, now_ms)
        if bandwidth_ms:
            quota.throttled(limit, bandwidth_ms, now_ms)
            self._connection.throttle(bandwidth_ms)
        self._throttle_ms = throttle_ms
        return throttle_ms

    @property
    def limits_time(self) -> bool:
        return self._limits.request is not None

    def handled(self) -> None:
        """The handler has returned without an answer: the time until then is what the request is charged."""
        self._spent_ns = now_ns() - self._began_ns

    def settle(self) -> int:
        """The request is being answered; returns how long the client is throttled."""
        limit = self._limits.request
        if limit is None or self._is_settled:
            return self._throttle_ms
        self._is_settled = True
        spent_ns = self._spent_ns or now_ns() - self._began_ns
        quota, now_ms = self._throttling.quotas.request, self._throttling.now_ms()
        throttle_ms = quota.record(limit, spent_ns * PERCENT_PER_NS, now_ms)
        if throttle_ms:
            quota.throttled(limit, throttle_ms, now_ms)
            self._connection.throttle(throttle_ms)
            self._throttle_ms = max(self._throttle_ms, throttle_ms)
        return self._throttle_ms


class MutationCharge:
    """What a request that creates or deletes partitions is charged; the active controller keeps the accounts."""

    def __init__(self, throttling: Throttling, request: Request, limit: Limit | None, *, is_strict: bool) -> None:
        self._throttling = throttling
        self._request = request
        self._limit = limit
        self._is_strict = is_strict
        self._throttle_ms = 0

    def take(self, partitions: int) -> None:
        """Count this many; KafkaError(THROTTLING_QUOTA_EXCEEDED) if that is too much."""
        limit = self._limit
        if limit is None:
            return
        now_ms = self._throttling.now_ms()
        throttle_ms = self._throttling.quotas.mutation.take(limit, partitions, now_ms, is_strict=self._is_strict)
        if throttle_ms:
            self._throttle_ms = throttle_ms
            if self._is_strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def with_throttle_time(self, result: Result[Response]) -> Result[Response]:
        """The result, with the throttle time in the response; the client's connection is muted."""
        if self._limit is not None and self._throttle_ms:
            self._throttling.quotas.mutation.throttled(self._limit, self._throttle_ms, self._throttling.now_ms())
            result.response.throttle_time_ms = self._throttle_ms
            self._request.throttle(self._throttle_ms)
        return result


def is_exempt(api_key: int, version: int) -> bool:
    """Whether only other nodes send this request. (Followers' fetches are recognized by their handler.)"""
    return api_key == ApiKey.WRITE_TXN_MARKERS or (
        api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version >= NODES_ADD_PARTITIONS_SINCE
    )
