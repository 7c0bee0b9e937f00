"""A request on its way through a handler: who asks, how, and the way back.

Most come over a connection. A node that is the active controller asks itself without one (`LocalRequest`), and what a
broker passes on from its clients comes wrapped in an Envelope (`EnvelopedRequest`); handlers cannot tell.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any

from penstock.broker.net.connection import Connection, Reply
from penstock.io.files import Buffer
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.frames import response_parts
from penstock.protocol.messages.envelope import EnvelopeResponse
from penstock.security.authorizer import Authorizer, Operation, Resource, ResourceKind, authorized_operations
from penstock.security.principal import Principal

logger = logging.getLogger("penstock.router")

_LENGTH = struct.Struct(">i")


class Request:
    """One that came over a connection."""

    __slots__ = (
        "_authorizer",
        "api_key",
        "client_host",
        "client_id",
        "connection",
        "correlation_id",
        "frame",
        "may_be_forwarded",
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
        """`frame`: the request as it came, header included; good only while the handler runs. `may_be_forwarded`: it
        came from a client of this broker, and not from another node that takes this one for the active controller."""
        self.connection: Connection = connection  # type: ignore[assignment]  # only handlers of controllers do without
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.principal = principal
        self.frame = frame
        self.client_host = client_host
        self.may_be_forwarded = may_be_forwarded
        self._authorizer = authorizer

    def may(self, operation: Operation, resource: Resource) -> bool:
        return self._authorizer.authorize(self.principal, operation, resource)

    def may_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there may be a resource of that kind that it may be done to."""
        return self._authorizer.authorize_any(self.principal, operation, kind)

    def allowed_of(self, operations: frozenset[Operation], resource: Resource) -> int:
        """Which of the operations this client may do, as the bit field that responses carry."""
        return authorized_operations(self._authorizer, self.principal, resource, operations)

    def parts(self, response: Any) -> list[Buffer]:
        parts: list[Buffer] = []
        response_parts(self.api_key, self.version, self.correlation_id, response, parts)
        return parts

    def answer(self, response: Any) -> None:
        """From within the handler."""
        self.connection.send(self.parts(response))

    def refuse(self, answer: Callable[[Any], None], error: KafkaError, response: Any) -> None:
        """Say that the controller refused the request as a whole; `response` says so to a client."""
        answer(response)

    def park(self, *, mute: bool = False, on_lost: Callable[[], None] | None = None) -> Callable[[Any], None]:
        """Answer later: call what this returns with the response, once. `on_lost`: the client went without waiting."""
        reply: Reply = self.connection.park(mute=mute)
        reply.on_lost = on_lost

        def answer(response: Any) -> None:
            if not reply.is_wanted:
                return
            try:
                parts = self.parts(response)
            except Exception:
                # A defect of ours. Whoever calls this has others to answer after this client, who learns it this way.
                logger.exception("API %d v%d cannot be answered", self.api_key, self.version)
                self.connection.abort()
                return
            reply.complete(parts)

        return answer

    def park_encoded(self) -> Callable[[bytes], None]:
        """As `park`, for an answer that another node has encoded, response header and all."""
        reply = self.connection.park()

        def answer(data: bytes) -> None:
            if reply.is_wanted:
                reply.complete([_LENGTH.pack(len(data)), data])

        return answer


class LocalRequest(Request):
    """One that this node asks of itself."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Any], None], *request: Any) -> None:
        super().__init__(None, *request)
        self._done = done

    def answer(self, response: Any) -> None:
        self._done(response)

    def park(self, *, mute: bool = False, on_lost: Callable[[], None] | None = None) -> Callable[[Any], None]:
        return self._done


class EnvelopedRequest(Request):
    """One that a broker passes on from a client of its own; the answer goes back as the bytes for that client."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[EnvelopeResponse], None], connection: Connection, *request: Any) -> None:
        super().__init__(connection, *request)
        self._done = done

    def answer(self, response: Any) -> None:
        try:
            data = b"".join(self.parts(response))
        except Exception:
            logger.exception("API %d v%d, passed on by a broker, cannot be answered", self.api_key, self.version)
            self._done(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._done(EnvelopeResponse(response_data=data[_LENGTH.size :]))

    def refuse(self, answer: Callable[[Any], None], error: KafkaError, response: Any) -> None:
        """The broker tries again with whoever is the active controller by then; its client need not know."""
        if error.code is ErrorCode.NOT_CONTROLLER:
            self._done(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
        else:
            answer(response)

    def park(self, *, mute: bool = False, on_lost: Callable[[], None] | None = None) -> Callable[[Any], None]:
        return self.answer
