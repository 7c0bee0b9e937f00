"""Checks brokers that may be dead: those whose connection ended and, after a takeover, those without a heartbeat yet.

It runs on the active controller and reports to `Heartbeats`, which decides what follows. For a neighbour, on the same
machine, it checks the process, and finds a death within moments. It calls other brokers repeatedly until they send a
heartbeat or are fenced: a single refused connection can have many reasons. A broker on another machine is fenced when
its connections are refused for `penstock.broker.refused.ms` (three seconds by default), and a silent one when its
session ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock import __version__
from penstock.broker.metadata.neighbourhood import Neighbourhood
from penstock.broker.net.peers import Peer, PeerFailed, Peers
from penstock.controller.controller import Controller
from penstock.controller.heartbeats import BrokerSession, Heartbeats
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

LOOK_S: Final = 0.1
CALL_TIMEOUT_S: Final = 2.0
CHANNEL: Final = "call"


class Suspects:
    def __init__(
        self,
        *,
        node_id: int,
        listener: str,
        loop: asyncio.AbstractEventLoop,
        controller: Controller,
        peers: Peers,
        neighbourhood: Neighbourhood,
        on_found: Callable[[], None],
    ) -> None:
        """`listener`: the one that nodes use to reach brokers; the addresses for clients may only work for clients.
        `on_found`: called when a session may end earlier."""
        self._node_id = node_id
        self._listener = listener
        self._loop = loop
        self._controller = controller
        self._peers = peers
        self._neighbourhood = neighbourhood
        self._on_found = on_found
        self._timers: dict[BrokerSession, asyncio.Handle] = {}

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def look(self, call_after_s: float = LOOK_S) -> None:
        """Check all current suspects; they may send a heartbeat on their own before they are called."""
        for session in self._heartbeats.suspects:
            if session not in self._timers and not self._find_dead(session, refused=False):
                self._later(session, call_after_s, self._call)

    @property
    def _heartbeats(self) -> Heartbeats:
        return self._controller.heartbeats

    def _later(self, session: BrokerSession, seconds: float, act: Callable[[BrokerSession], None]) -> None:
        self._timers[session] = self._loop.call_later(seconds, act, session)

    def _find_dead(self, session: BrokerSession, *, refused: bool) -> bool:
        broker = self._controller.image.brokers.get(session.broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        host = "" if endpoint is None else endpoint.host
        if broker is None or not self._neighbourhood.is_dead(broker.incarnation_id, host, refused=refused):
            return False
        self._heartbeats.process_gone(session, int(self._loop.time() * 1000))
        self._on_found()
        return True

    def _call(self, session: BrokerSession) -> None:
        if not self._heartbeats.is_suspect(session) or self._find_dead(session, refused=False):
            del self._timers[session]
            return
        broker = self._controller.image.brokers[session.broker_id]
        endpoint = broker.endpoints.get(self._listener)
        if endpoint is None or session.broker_id == self._node_id:
            del self._timers[session]
            return
        peer = self._peers.at(endpoint.host, endpoint.port, CHANNEL)
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
        peer.send(request, partial(self._called, session, peer), timeout=CALL_TIMEOUT_S)

    def _called(self, session: BrokerSession, peer: Peer, outcome: ApiVersionsResponse | PeerFailed) -> None:
        peer.close()
        if session not in self._timers:
            return  # this node is no longer the active controller
        refused = isinstance(outcome, PeerFailed) and outcome.refused
        if refused and self._find_dead(session, refused=True):
            del self._timers[session]
            return
        broker = self._controller.image.brokers.get(session.broker_id)
        if refused and broker is not None and not self._neighbourhood.lives(broker.incarnation_id):
            self._heartbeats.refused(session, int(self._loop.time() * 1000))
            self._on_found()
        else:
            self._heartbeats.not_refused(session)
        self._later(session, LOOK_S, self._call)
