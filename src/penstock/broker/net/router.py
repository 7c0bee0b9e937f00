"""From a frame to the handler of its API, and back.

A handler is `handle(node, request, message) -> response | None`. None means that no reply is due now: the handler has
parked the request, or the client asked for no answer (Produce with acks=0). One whose work depends on more than its
request is a generator (see `long_answers`).

What bad input gets: a frame that cannot be parsed, and an API or version that is not served, close the connection, as
in Kafka; only ApiVersions answers an unknown version, in the one form every client can read.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Generator, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.apis import api_versions, fetch_plain, init_producer_id, produce_plain, produce_run
from penstock.broker.net.connection import Connection
from penstock.broker.net.latency import Latency, now_ns
from penstock.broker.net.long_answers import LongAnswers
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import MalformedMessage, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import read_request_header, response_parts
from penstock.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from penstock.broker.node import Node

logger = logging.getLogger("penstock.router")

Handler = Callable[[Any, Request, Any], Any]

_read_start = struct.Struct(">hhi").unpack_from


class Route(NamedTuple):
    api_key: ApiKey
    min_version: int
    max_version: int
    advertised_min: int
    request: type[Message]
    handle: Handler


class Router:
    """The APIs that one kind of listener serves."""

    def __init__(self, node: Node, modules: Iterable[ModuleType], *, forwards: bool = True) -> None:
        """`forwards`: whether those who ask here are clients, whose business with the controller is passed on to it."""
        self._node = node
        self.forwards = forwards
        latencies = node.metrics.requests
        self._fetch = latencies.of("FetchConsumer")
        self._latencies: dict[int, Latency] = {}
        self._long_answers = LongAnswers(node.loop)
        self.routes: dict[int, Route] = {}
        for module in modules:
            key: ApiKey = module.API_KEY
            low, high = module.VERSIONS
            if key is ApiKey.INIT_PRODUCER_ID and not node.settings.transaction_two_phase_commit_enable:
                # Transactions of other systems are for those who allow them: for others there are none.
                high = init_producer_id.TWO_PHASE_COMMIT_SINCE - 1
            spec = API[key]
            advertised_min = min(low, spec.advertised_min_version)
            self.routes[int(key)] = Route(key, low, high, advertised_min, spec.request, module.handle)
            is_of_consumers = forwards and key is ApiKey.FETCH
            self._latencies[int(key)] = self._fetch if is_of_consumers else latencies.of(spec.name)

    def handle_run(self, connection: Connection, view: memoryview, position: int, received: int) -> int:
        """Handle several requests at once, if those from `position` on are of that kind; where they end."""
        return produce_run.handle(self._node, connection, view, position, received)

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        frame = view[start:end]
        api_key, version, correlation_id = _read_start(frame)
        if (
            api_key == 0
            and 3 <= version <= 13
            and produce_plain.handle(self._node, connection, frame, version, correlation_id)
        ):
            return
        if api_key == 1 and 12 <= version <= 18:
            connection.latency = self._fetch
            if fetch_plain.handle(self._node, connection, frame, version, correlation_id):
                return
        self.handle_message(connection, view, start, end)

    def handle_message(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        """The general way, which is the only one where no records are served."""
        frame = view[start:end]
        api_key, version, correlation_id = _read_start(frame)
        route = self.routes.get(api_key)
        connection.latency = self._latencies.get(api_key)
        if route is None or not route.min_version <= version <= route.max_version:
            self._refuse(connection, api_key, version, correlation_id)
            return
        try:
            header, position = read_request_header(frame, 0)
            # Bytes after the message are let pass, as Kafka does: librdkafka sends some with Metadata for all topics.
            message, _ = decode_from(route.request, frame, version, position)
        except MalformedMessage as error:
            logger.warning(
                "closing %s: a malformed %s v%d request: %s", connection.peer_host, route.api_key.name, version, error
            )
            connection.abort()
            return
        request = Request(
            connection,
            api_key,
            version,
            correlation_id,
            header.client_id,
            ANONYMOUS,
            self._node.authorizer,
            self,
            frame,
            connection.peer_host,
        )
        try:
            response = route.handle(self._node, request, message)
            if isinstance(response, Generator):
                response = self._long_answers.begin(request, response)
                if response is None:
                    return
            if response is not None:
                connection.send(request.parts(response))
            elif connection.latency is not None:  # neither answered nor parked: nobody waits for an answer
                connection.latency.add(now_ns() - connection.since)
        except Exception:
            # A defect of ours, never the client's fault; it must not take other clients' connections with it.
            logger.exception("%s v%d from %s failed", route.api_key.name, version, connection.peer_host)
            failure = self._failure(route)
            if failure is None:
                connection.abort()
            else:
                connection.send(request.parts(failure))

    def _refuse(self, connection: Connection, api_key: int, version: int, correlation_id: int) -> None:
        if api_key == ApiKey.API_VERSIONS:
            response = api_versions.respond(self._node, self, 0)
            response.error_code = ErrorCode.UNSUPPORTED_VERSION
            parts: list[Any] = []
            response_parts(ApiKey.API_VERSIONS, 0, correlation_id, response, parts)
            connection.send(parts)
            return
        logger.warning("closing %s: API %d version %d is not served", connection.peer_host, api_key, version)
        connection.abort()

    @staticmethod
    def _failure(route: Route) -> Any:
        """UNKNOWN_SERVER_ERROR, for the responses that can say so as a whole."""
        response_type = API[route.api_key].response
        if "error_code" not in getattr(response_type, "__slots__", ()):
            return None
        return response_type(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
