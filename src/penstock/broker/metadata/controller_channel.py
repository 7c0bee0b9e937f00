"""Sends requests to the active controller, and follows it when it changes.

A request gets one answer, or fails when its timeout is over. While no controller is known, the request waits for one.
If the connection is lost, or the node turns out not to be the active controller, the request is sent again. So the
controller may handle a request twice; its handlers allow for that by checking epochs.

If this node is the active controller, it calls the same handlers directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.net.peers import Peer, PeerFailed, Peers
from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message

logger = logging.getLogger("penstock.controller")

RETRY_S: Final = 0.05

Done = Callable[[Any], None]  # gets the response, or a PeerFailed


@dataclass(slots=True, eq=False)
class _PendingRequest:
    message: Message
    done: Done
    deadline: float
    is_over: bool = field(default=False, init=False)
    timer: asyncio.TimerHandle | None = field(default=None, init=False)


class ControllerChannel:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        quorum: MetadataQuorum,
        peers: Peers,
        ask_here: Callable[[Message, Done], None],
        channel: str,
    ) -> None:
        """`ask_here`: sends a request to this node itself. `channel`: users of one channel share a connection."""
        self._loop = loop
        self._quorum = quorum
        self._peers = peers
        self._ask_here = ask_here
        self._channel = channel
        self._peer: Peer | None = None
        self._open: dict[_PendingRequest, None] = {}
        self._waiting: dict[_PendingRequest, None] = {}  # until a controller is known
        self._is_closed = False
        self.leader_known = asyncio.Event()
        """Set whenever a change leaves a leader that is known."""
        self.on_connection_lost: Callable[[], None] | None = None

    def send(self, message: Message, done: Done, *, timeout: float) -> None:
        """`done` gets the response or a PeerFailed, later."""
        asked = _PendingRequest(message, done, self._loop.time() + timeout)
        if self._is_closed:
            self._loop.call_soon(done, PeerFailed("this node is stopping"))
            return
        asked.timer = self._loop.call_at(asked.deadline, self._expire, asked)
        self._open[asked] = None
        self._try(asked)

    def controller_changed(self) -> None:
        """Another node is the active controller, or the active controller is unknown."""
        if self._quorum.controller_id >= 0:
            self.leader_known.set()
        target = self._target()
        if self._peer is not None and target is not self._peer:
            # An answer may still arrive, but this is not certain: the former controller may be cut off.
            former, self._peer = self._peer, None
            former.on_lost = None
            former.disconnect("another node is the active controller")
        waiting, self._waiting = self._waiting, {}
        for asked in waiting:
            self._try(asked)

    def close(self) -> None:
        self._is_closed = True
        for asked in list(self._open):
            self._finish(asked, PeerFailed("this node is stopping"))

    def _target(self) -> Peer | None:
        endpoint = self._quorum.controller_endpoint
        return None if endpoint is None else self._peers.at(*endpoint, self._channel)

    def _try(self, asked: _PendingRequest) -> None:
        if asked.is_over:
            return
        if self._quorum.is_active:
            self._ask_here(asked.message, lambda response: self._answer_soon(asked, response))
            return
        peer = self._target()
        if peer is None:
            self._waiting[asked] = None
            return
        self._peer = peer
        peer.on_lost = self._connection_lost
        peer.send(asked.message, partial(self._answered, asked), timeout=asked.deadline - self._loop.time())

    def _answer_soon(self, asked: _PendingRequest, response: Any) -> None:
        self._loop.call_soon(self._answered, asked, response)

    def _answered(self, asked: _PendingRequest, outcome: Any) -> None:
        if asked.is_over:
            return
        if isinstance(outcome, PeerFailed):
            logger.debug("asking the controller again: %s", outcome.message)
        elif getattr(outcome, "error_code", ErrorCode.NONE) != ErrorCode.NOT_CONTROLLER:
            self._finish(asked, outcome)
            return
        self._loop.call_later(RETRY_S, self._try, asked)

    def _expire(self, asked: _PendingRequest) -> None:
        who = "no controller is known" if asked in self._waiting else "the controller did not answer in time"
        self._finish(asked, PeerFailed(who, timed_out=True))

    def _finish(self, asked: _PendingRequest, outcome: Any) -> None:
        if asked.is_over:
            return
        asked.is_over = True
        self._open.pop(asked, None)
        self._waiting.pop(asked, None)
        if asked.timer is not None:
            asked.timer.cancel()
        asked.done(outcome)

    def _connection_lost(self) -> None:
        if self.on_connection_lost is not None and not self._is_closed:
            self.on_connection_lost()
