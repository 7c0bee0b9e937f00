"""Requests in flight to other nodes: one at a time to each, abandoned after a timeout, repeated after a pause.

An answer counts only for the request that is still awaited. A change of role drops all requests, so that an answer from
an earlier role is never processed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.raft.messages import Request
from penstock.raft.ready import QuorumNode, Send


class InFlight(NamedTuple):
    request_id: int
    to: QuorumNode
    request: Request
    deadline: int


class Connections:
    def __init__(
        self,
        bootstrap: Sequence[QuorumNode],
        request_timeout_ms: int,
        retry_backoff_ms: int,
        random_below: Callable[[int], int],
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._random_below = random_below
        self._in_flight: dict[int, InFlight] = {}
        self._backing_off_until: dict[int, int] = {}
        self._last_id = 0

    def reset(self) -> None:
        self._in_flight.clear()
        self._backing_off_until.clear()

    def expire(self, now: int) -> list[InFlight]:
        """Remove and return the requests that have timed out."""
        expired = [sent for sent in self._in_flight.values() if sent.deadline <= now]
        for sent in expired:
            del self._in_flight[sent.to.node_id]
        self._backing_off_until = {node: until for node, until in self._backing_off_until.items() if until > now}
        return expired

    def is_ready(self, to: QuorumNode, now: int) -> bool:
        return to.node_id not in self._in_flight and not self.is_backing_off(to, now)

    def is_backing_off(self, to: QuorumNode, now: int) -> bool:
        return self._backing_off_until.get(to.node_id, now) > now

    @property
    def any_in_flight(self) -> bool:
        return bool(self._in_flight)

    def send(self, to: QuorumNode, request: Request, now: int) -> Send:
        assert to.node_id not in self._in_flight, "one request at a time to each node"
        self._last_id += 1
        self._in_flight[to.node_id] = InFlight(self._last_id, to, request, now + self._request_timeout_ms)
        return Send(self._last_id, to, request)

    def take(self, request_id: int) -> InFlight | None:
        """Remove and return the request that was answered or failed; None if it is no longer awaited."""
        for sent in self._in_flight.values():
            if sent.request_id == request_id:
                return self._in_flight.pop(sent.to.node_id)
        return None

    def back_off(self, to: QuorumNode, now: int, pause_ms: int | None = None) -> None:
        """Pause requests to a node. `pause_ms` overrides the usual pause."""
        self._backing_off_until[to.node_id] = now + (pause_ms or self._retry_backoff_ms)

    def back_off_everywhere(self, to: QuorumNode, now: int, pause_ms: int) -> None:
        """Also pause bootstrap servers at the same address: they are the same node, listed before its id was known."""
        for server in (to, *self._bootstrap):
            if (server.host, server.port) == (to.host, to.port):
                self.back_off(server, now, pause_ms)

    def find_server(self, voters: Sequence[QuorumNode], now: int) -> QuorumNode | None:
        """A random bootstrap server, or a voter that is not among them, if no request is in flight: there is never more
        than one fetch."""
        if self._in_flight:
            return None
        known = {(server.host, server.port) for server in self._bootstrap}
        servers = [*self._bootstrap, *(voter for voter in voters if (voter.host, voter.port) not in known)]
        ready = [server for server in servers if self.is_ready(server, now)]
        return ready[self._random_below(len(ready))] if ready else None

    def next_deadline(self) -> int | None:
        """When the next request times out or the next pause ends."""
        deadlines = [sent.deadline for sent in self._in_flight.values()]
        deadlines.extend(self._backing_off_until.values())
        return min(deadlines, default=None)
