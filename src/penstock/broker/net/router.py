"""Decodes a frame, calls the handler of its API, and sends the response.

A handler is `handle(services, request, message) -> response | None`, in a module named after the key of its API. The
services are the parts of the node that its family of handlers works with. None means that no reply is due now: the
handler has parked the request, or the client wants no answer (Produce with acks=0). A handler whose work depends on
more than its request is a generator (see `long_answers`).

Bad input: a frame that cannot be parsed, or an API or version that is not served, closes the connection, as in Kafka.
Only ApiVersions answers an unknown version, in the one form that every client can read. Bytes after a request are
ignored, as in Kafka: librdkafka sends some. Missing or nonsensical bytes close the connection.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, Never, Protocol, TypeVar

from penstock.broker.net.connection import Connection
from penstock.broker.net.latency import Latencies, Latency, now_ns
from penstock.broker.net.long_answers import LongAnswers
from penstock.broker.net.request import LocalRequest, Request
from penstock.broker.net.throttling import Meter
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import REQUEST_ELEMENTS_MAX, MalformedMessage, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import read_request_header
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.security.acl_authorizer import AuthorizerNotReady
from penstock.security.authorizer import AllowAll, Authorizer
from penstock.security.principal import ANONYMOUS

logger = logging.getLogger("penstock.router")

Services = TypeVar("Services")
ServicesUsed = TypeVar("ServicesUsed", contravariant=True)

_read_start = struct.Struct(">hhi").unpack_from


class Api(Protocol[ServicesUsed]):
    """A module that serves one API, and is named after its key."""

    __name__: str

    @property
    def VERSIONS(self) -> tuple[int, int]: ...  # noqa: N802 - a constant of the module

    def handle(self, services: ServicesUsed, request: Request, message: Never, /) -> object: ...


def key_of(api: Api[Never]) -> ApiKey:
    return ApiKey[api.__name__.rpartition(".")[2].upper()]


class Route(NamedTuple):
    api_key: ApiKey
    min_version: int
    max_version: int
    advertised_min: int
    request: type[Message]
    handle: Callable[[Any, Request, Any], Any]
    services: object


class Router:
    """The APIs that one kind of listener serves."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        authorizer: Authorizer,
        latencies: Latencies,
        *,
        forwards: bool,
    ) -> None:
        """`forwards`: the callers are clients, whose requests to the controller are forwarded to it."""
        self._authorizer = authorizer
        self._forwards = forwards
        self._latency_of = latencies.of
        self._latencies: dict[int, Latency] = {}
        self._long_answers = LongAnswers(loop)
        self.routes: dict[int, Route] = {}

    def serve(self, apis: Iterable[Api[Services]], services: Services) -> None:
        for api in apis:
            key = key_of(api)
            low, high = api.VERSIONS
            spec = API[key]
            advertised_min = min(low, spec.advertised_min_version)
            self.routes[int(key)] = Route(key, low, high, advertised_min, spec.request, api.handle, services)
            is_of_consumers = self._forwards and key is ApiKey.FETCH
            self._latencies[int(key)] = self._latency_of("FetchConsumer" if is_of_consumers else spec.name)

    def serve_below(self, key: ApiKey, version: int) -> None:
        """Serve only the versions of this API below `version`."""
        self.routes[int(key)] = self.routes[int(key)]._replace(max_version=version - 1)

    def ask(self, message: Message, done: Callable[[Any], None]) -> None:
        """Send a request to this node itself; `done` gets the response, possibly before this method returns."""
        route = self.routes[message.__schema__.key or 0]
        # The node itself: whatever it may not do, it would not ask of itself.
        request = LocalRequest(done, route.api_key, route.max_version, 0, "local", ANONYMOUS, AllowAll())
        response = route.handle(route.services, request, message)
        if response is not None:
            request.answer(response)

    def handle_message(
        self, connection: Connection, view: memoryview, start: int, end: int, meter: Meter | None = None
    ) -> None:
        frame = view[start:end]
        api_key, version, correlation_id = _read_start(frame)
        route = self.routes.get(api_key)
        connection.latency = self._latencies.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            self._refuse(connection, api_key, version, correlation_id)
            return
        try:
            header, position = read_request_header(frame, 0)
            # Bytes after the message are ignored, as in Kafka: librdkafka sends some with Metadata for all topics.
            message, _ = decode_from(route.request, frame, version, position, REQUEST_ELEMENTS_MAX)
        except MalformedMessage as error:
            self._abort(connection, f"a malformed {route.api_key.name} v{version} request: {error}")
            return
        request = Request(
            connection,
            api_key,
            version,
            correlation_id,
            header.client_id,
            connection.principal,
            self._authorizer,
            frame,
            connection.peer_host,
            self._forwards,
        )
        request.meter = meter
        try:
            response = route.handle(route.services, request, message)
            if isinstance(response, Generator):
                response = self._long_answers.begin(request, response)
                if response is None:
                    return
            if response is not None:
                if meter is not None:
                    request.settle(response)
                connection.send(request.parts(response))
                return
            if meter is not None:
                meter.handled()
            if connection.latency is not None:  # neither answered nor parked: the client waits for no answer
                connection.latency.add(now_ns() - connection.since)
        except AuthorizerNotReady:
            logger.info("closing %s: the ACLs are not loaded yet", connection.peer_host)
            connection.abort()
        except Exception:
            # A defect in the handler, never the client's fault; it must not affect other clients' connections.
            logger.exception("%s v%d from %s failed", route.api_key.name, version, connection.peer_host)
            failure = self._failure(route)
            if failure is None:
                connection.abort()
            else:
                connection.send(request.parts(failure))

    def _refuse(self, connection: Connection, api_key: int, version: int, correlation_id: int) -> None:
        if api_key == ApiKey.API_VERSIONS:
            route = self.routes[api_key]
            request = Request(connection, api_key, 0, correlation_id, None, connection.principal, self._authorizer)
            response = route.handle(route.services, request, ApiVersionsRequest())
            response.error_code = ErrorCode.UNSUPPORTED_VERSION
            connection.send(request.parts(response))
            return
        self._abort(connection, f"API {api_key} version {version} is not served")

    @staticmethod
    def _abort(connection: Connection, reason: str) -> None:
        connection.listener.complaints.log(logging.WARNING, "closing %s: %s", connection.peer_host, reason)
        connection.abort()

    @staticmethod
    def _failure(route: Route) -> Any:
        """UNKNOWN_SERVER_ERROR, for responses with a top-level error code; None for others."""
        response_type = API[route.api_key].response
        if "error_code" not in getattr(response_type, "__slots__", ()):
            return None
        return response_type(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
