"""Stands between the frames of a connection and the router until the client is authenticated.

The gate drives the state machine in `penstock.security.sasl.authentication`. When the client is authenticated and its
session has no end, the gate steps aside and costs nothing any more. Otherwise it stays, to notice the end.

A refused client gets its answer, and the close after it, only after a delay. The connection reads nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from penstock.broker.authentication.verifications import Verifications
from penstock.broker.log_limiter import SparingLog
from penstock.broker.net.connection import Connection, PendingReply
from penstock.io.clock import Clock
from penstock.security.sasl.authentication import Authentication, Close, PassOn, Send, Step, Verify
from penstock.security.sasl.exchange import Accepted, AuthenticationFailed, Challenge

logger = logging.getLogger("penstock.authentication")


class Router(Protocol):
    def __call__(self, connection: Connection, view: memoryview, start: int, end: int, /) -> None: ...


class AuthenticationCounts:
    """What the gates of a listener have seen, for metrics."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0


class Gate:
    def __init__(
        self,
        connection: Connection,
        authentication: Authentication,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        verifications: Verifications,
        counts: AuthenticationCounts,
        log: SparingLog,
        request_bytes_max: int,
        failure_delay_s: float,
    ) -> None:
        self._connection = connection
        self._authentication = authentication
        self._loop = loop
        self._clock = clock
        self._verifications = verifications
        self._counts = counts
        self._log = log
        self._failure_delay_s = failure_delay_s
        self.request_bytes_max = request_bytes_max

    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        was_ready = self._authentication.is_ready
        step = self._authentication.received(view[start:end], self._clock.boottime_ms())
        if isinstance(step, PassOn):
            connection.listener.handle(connection, view, start, end)
        elif isinstance(step, Verify):
            reply = connection.park(mute=True)
            host = connection.peer_host
            reply.on_lost = partial(self._verifications.forget, host, reply)
            self._verifications.run(host, reply, step.work, lambda outcome: self._verified(reply, outcome))
        else:
            self._carry_out(step, None)
        if was_ready and not self._authentication.is_ready:
            connection.guard(self)

    def handle_run(self, connection: Connection, view: memoryview, start: int, end: int) -> int:
        """Runs of requests are handled one by one: the session may end between two of them."""
        return start

    def _verified(self, reply: PendingReply, outcome: Challenge | Accepted | AuthenticationFailed) -> None:
        if not reply.is_wanted:
            return
        try:
            self._carry_out(self._authentication.verified(outcome, self._clock.boottime_ms()), reply)
        except Exception:
            # A defect. A connection whose request is never answered would stay open for ever.
            logger.exception("closing %s: its login cannot be answered", self._connection.peer_host)
            self._connection.abort()

    def _carry_out(self, step: Step, reply: PendingReply | None) -> None:
        """`reply`: the place of a request that had to wait."""
        connection = self._connection
        if isinstance(step, Close):
            self._refuse(step, reply)
            return
        assert isinstance(step, Send)
        if self._authentication.is_ready:
            self._let_in()
        if reply is None:
            connection.send([step.frame])
        else:
            reply.complete([step.frame])

    def _let_in(self) -> None:
        session = self._authentication.session
        assert session is not None
        self._counts.succeeded += 1
        self._connection.authenticated(session.principal, by_token=session.by_token)
        self._connection.let_in(self if self._authentication.needs_watching else None)

    def _refuse(self, step: Close, reply: PendingReply | None) -> None:
        connection = self._connection
        self._counts.failed += 1
        self._log.log(
            logging.WARNING,
            "closing %s at listener %s: %s",
            connection.peer_host,
            connection.listener.name,
            step.reason,
        )
        if not step.is_delayed:
            connection.close()
            return
        place = reply or connection.park(mute=True)
        self._loop.call_later(self._failure_delay_s, self._end, place, step.reply)

    def _end(self, place: PendingReply, answer: bytes) -> None:
        if place.is_wanted:
            self._connection.end_with(place, [answer] if answer else [])
