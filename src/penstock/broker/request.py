"""A request on its way through a handler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.io.files import Buffer
from penstock.protocol.frames import response_parts
from penstock.security.authorizer import Authorizer, Operation, Resource, authorized_operations

if TYPE_CHECKING:
    from penstock.broker.connection import Connection, Reply
    from penstock.security.principal import Principal

logger = logging.getLogger("penstock.router")


class Request:
    """Who asks, how, and the way back."""

    __slots__ = ("_authorizer", "api_key", "client_id", "connection", "correlation_id", "principal", "version")

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        principal: Principal,
        authorizer: Authorizer,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.principal = principal
        self._authorizer = authorizer

    def may(self, operation: Operation, resource: Resource) -> bool:
        return self._authorizer.authorize(self.principal, operation, resource)

    def allowed_of(self, operations: frozenset[Operation], resource: Resource) -> int:
        """Which of the operations this client may do, as the bit field that responses carry."""
        return authorized_operations(self._authorizer, self.principal, resource, operations)

    def parts(self, response: Any) -> list[Buffer]:
        parts: list[Buffer] = []
        response_parts(self.api_key, self.version, self.correlation_id, response, parts)
        return parts

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
