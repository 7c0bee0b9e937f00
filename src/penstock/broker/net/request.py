"""A request as its handler sees it: the client, the API version, and the means to answer.

Most requests come over a connection. A node that is the active controller sends requests to itself without one
(`LocalRequest`). Requests that a broker forwards for its clients arrive in an Envelope (`EnvelopedRequest`). Handlers
see no difference.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.net.connection import Connection, PendingReply
from penstock.io.files import Buffer
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import join
from penstock.protocol.frames import response_parts, throttle_time_at
from penstock.protocol.messages.envelope import EnvelopeResponse
from penstock.protocol.primitives import Part
from penstock.security.authorizer import (
    CLUSTER,
    CLUSTER_OPERATIONS,
    Authorizer,
    Operation,
    Resource,
    ResourceKind,
    authorized_operations,
)
from penstock.security.principal import Principal

if TYPE_CHECKING:
    from penstock.broker.net.throttling import Meter

logger = logging.getLogger("penstock.router")

_LENGTH = struct.Struct(">i")


class Request:
    """A request that came over a connection."""

    __slots__ = (
        "_authorizer",
        "api_key",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "frame",
        "may_be_forwarded",
        "meter",
        "principal",
        "version",
    )

    def __init__(  # noqa: PLR0917
        self,
        connection: Connection | None,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        principal: Principal,
        authorizer: Authorizer,
        frame: Buffer | None = None,
        client_host: str = "",
        may_be_forwarded: bool = False,
    ) -> None:
        """`frame`: the received request with its header; valid only while the handler runs.

        `may_be_forwarded`: the request came from a client of this broker, not from another node that regards this one
        as the active controller.
        """
        self.connection: Connection = connection  # type: ignore[assignment]  # only handlers of controllers do without
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.principal = principal
        self.frame = frame
        self.client_host = client_host
        self.may_be_forwarded = may_be_forwarded
        self.meter: Meter | None = None  # for a client with quotas
        self._authorizer = authorizer

    @property
    def is_token_authenticated(self) -> bool:
        """Whether the client is authenticated by a delegation token."""
        return self.connection.is_token_authenticated

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Whether the client may do what it asks for; if not, the refusal is reported."""
        if self._authorizer.authorize(self.principal, self.client_host, operation, resource):
            return True
        self._authorizer.refused(self.principal, self.client_host, operation, resource, self.api_key)
        return False

    def could(self, operation: Operation, resource: Resource) -> bool:
        """Like `may`, where the client did not ask for this resource: to leave it out is no refusal to report."""
        return self._authorizer.authorize(self.principal, self.client_host, operation, resource)

    def may_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the client may be allowed this operation on some resource of that kind."""
        return self._authorizer.authorize_any(self.principal, self.client_host, operation, kind)

    def allowed_of(self, operations: frozenset[Operation], resource: Resource) -> int:
        """The operations that this client may perform, as the bit field in responses."""
        return authorized_operations(self._authorizer, self.principal, self.client_host, resource, operations)

    def allowed_of_cluster(self) -> int:
        """Likewise for the cluster; nothing if the client may not describe it."""
        return self.allowed_of(CLUSTER_OPERATIONS, CLUSTER) if self.may(Operation.DESCRIBE, CLUSTER) else 0

    def parts(self, response: Any) -> list[Part]:
        parts: list[Part] = []
        response_parts(self.api_key, self.version, self.correlation_id, response, parts)
        return parts

    def answer(self, response: Any) -> None:
        """Send the response; only from within the handler."""
        self.settle(response)
        self.connection.send(self.parts(response))

    def settle(self, response: Any) -> None:
        """The request is answered: throttle a client that has exceeded a quota, and say so in the response."""
        if self.meter is not None:
            throttle_ms = self.meter.settle()
            if throttle_ms > getattr(response, "throttle_time_ms", throttle_ms):
                response.throttle_time_ms = throttle_ms

    def throttle(self, throttle_ms: int) -> None:
        """Handle no further request of the client for this long."""
        self.connection.throttle(throttle_ms)

    def _settle_encoded(self, data: bytes) -> bytes:
        """Like `settle`, for the controller's response: its throttle time counts, too."""
        position = throttle_time_at(self.api_key, self.version)
        if position is None:
            return data
        (told_ms,) = _LENGTH.unpack_from(data, position)
        if told_ms > 0:
            self.throttle(told_ms)
        throttle_ms = 0 if self.meter is None else self.meter.settle()
        if throttle_ms <= told_ms:
            return data
        return data[:position] + _LENGTH.pack(throttle_ms) + data[position + _LENGTH.size :]

    def refuse(self, answer: Callable[[Any], None], error: KafkaError, response: Any) -> None:
        """Answer that the controller refused the whole request; `response` is the answer for a client."""
        answer(response)

    def park(self, *, mute: bool = False, on_lost: Callable[[], None] | None = None) -> Callable[[Any], None]:
        """Answer later: call the returned function once, with the response.

        `on_lost` is called if the client disconnects before.
        """
        reply = self._place(mute=mute)
        reply.on_lost = on_lost
        return lambda response: self.complete(reply, response)

    def _place(self, *, mute: bool = False) -> PendingReply:
        """The place of the answer among those to the client's other requests."""
        return self.connection.park(mute=mute)

    def postponed(self) -> PostponedRequest:
        """This request, to be handled later; the client's next requests wait."""
        request = PostponedRequest(
            self._place(mute=True),
            self.connection,
            self.api_key,
            self.version,
            self.correlation_id,
            self.client_id,
            self.principal,
            self._authorizer,
            None if self.frame is None else bytes(self.frame),
            self.client_host,
            self.may_be_forwarded,
        )
        request.meter = self.meter
        return request

    def complete(self, reply: PendingReply, response: Any) -> None:
        """Answer a request that was parked."""
        if not reply.is_wanted:
            return
        try:
            self.settle(response)
            parts = self.parts(response)
        except Exception:  # noqa: BLE001 - it is logged there
            self.failed()
            return
        reply.complete(parts)

    def failed(self) -> None:
        """An exception ended the handling of a request that was parked: a defect.

        The caller has other clients to answer; this one sees a closed connection.
        """
        logger.exception("API %d v%d cannot be answered", self.api_key, self.version)
        self.connection.abort()

    def park_encoded(self) -> Callable[[bytes], None]:
        """Like `park`, for an answer that another node has encoded, including the response header."""
        reply = self._place()

        def answer(data: bytes) -> None:
            if reply.is_wanted:
                data = self._settle_encoded(data)
                reply.complete([_LENGTH.pack(len(data)), data])

        return answer


class PostponedRequest(Request):
    """A request that is handled later, in its place among the client's requests."""

    __slots__ = ("_reply",)

    def __init__(self, reply: PendingReply, *request: Any) -> None:
        super().__init__(*request)
        self._reply = reply

    @property
    def is_wanted(self) -> bool:
        return self._reply.is_wanted

    def _place(self, *, mute: bool = False) -> PendingReply:
        return self._reply

    def answer(self, response: Any) -> None:
        self.complete(self._reply, response)


class LocalRequest(Request):
    """A request that this node sends to itself."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Any], None], *request: Any) -> None:
        super().__init__(None, *request)
        self._done = done

    def answer(self, response: Any) -> None:
        self._done(response)

    def throttle(self, throttle_ms: int) -> None:
        """A node does not throttle itself."""

    def park(self, *, mute: bool = False, on_lost: Callable[[], None] | None = None) -> Callable[[Any], None]:
        return self._done


class EnvelopedRequest(Request):
    """A request that a broker forwards for its client; the answer returns as the bytes for that client."""

    __slots__ = ("_by_token", "_done")

    def __init__(
        self, done: Callable[[EnvelopeResponse], None], by_token: bool, connection: Connection, *request: Any
    ) -> None:
        super().__init__(connection, *request)
        self._by_token = by_token
        self._done = done

    @property
    def is_token_authenticated(self) -> bool:
        return self._by_token

    def throttle(self, throttle_ms: int) -> None:
        """The broker throttles its client, when it reads the throttle time in the response."""

    def answer(self, response: Any) -> None:
        try:
            data = join(self.parts(response))
        except Exception:
            logger.exception("API %d v%d, passed on by a broker, cannot be answered", self.api_key, self.version)
            self._done(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._done(EnvelopeResponse(response_data=data[_LENGTH.size :]))

    def refuse(self, answer: Callable[[Any], None], error: KafkaError, response: Any) -> None:
        """On NOT_CONTROLLER the broker retries with the new active controller; its client does not notice."""
        if error.code is ErrorCode.NOT_CONTROLLER:
            self._done(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
        else:
            answer(response)

    def park(self, *, mute: bool = False, on_lost: Callable[[], None] | None = None) -> Callable[[Any], None]:
        return self.answer
