"""One connection with many requests in flight, for reading and writing topics.

`send` queues a request and returns. `receive` takes the bytes that have arrived and returns complete responses, in the
order of their requests. Neither waits: a `Leaders` waits for all of its channels at once. Responses are decoded in the
receive buffer, and the next `receive` overwrites it, so use their records before that.

A channel that failed is closed, like a `Connection`: the state of the stream is unknown.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from typing import Any, NamedTuple

from penstock.client.errors import TimedOut
from penstock.client.wire.connection import CLIENT_ID, WOULD_BLOCK, Connection
from penstock.protocol.conversation import Login, spec_of
from penstock.protocol.declaration import Message


class ChannelResponse(NamedTuple):
    about: Any  # the `about` passed to `send`
    response: Any


class _Context(NamedTuple):
    about: Any
    deadline: float


class Channel(Connection):
    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float,
        client_id: str = CLIENT_ID,
        login: Login | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host, port, timeout=timeout, client_id=client_id, login=login, tls=tls)
        self._socket.setblocking(False)
        self._outgoing: deque[memoryview] = deque()
        self._heard = 0.0  # when bytes last arrived

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_received(self) -> bool:
        """Whether TLS has decrypted bytes that `receive` has not taken."""
        return isinstance(self._socket, ssl.SSLSocket) and bool(self._socket.pending())

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    @property
    def pending(self) -> int:
        """The number of requests that have not been answered."""
        return len(self._conversation.sent)

    def deadline(self) -> float | None:
        """When the next bytes must have arrived. A response that arrives in pieces may take longer as a whole."""
        if not self._conversation.sent:
            return None
        oldest: _Context | None = self._conversation.sent[0].context
        assert oldest is not None  # the handshake is done
        return max(oldest.deadline, self._heard + self.timeout)

    def send(self, message: Message, about: Any, *, newest: int | None = None, answered: bool = True) -> None:
        """Queue a request, in no later version than `newest`; `about` is returned with its answer.

        A Produce with acks=0 is not `answered`.
        """
        version = self.version(spec_of(message).key)
        context = _Context(about, time.monotonic() + self.timeout)
        conversation = self._conversation
        conversation.request(
            message, context, version if newest is None else min(version, newest), is_answered=answered
        )
        self._outgoing.append(memoryview(conversation.take_outgoing()))
        self.flush()

    def flush(self) -> None:
        """Send as much of the queue as the socket accepts."""
        with self._failures_named("a request", self.timeout):
            try:
                while self._outgoing:
                    sent = self._socket.send(self._outgoing[0])
                    if sent < len(self._outgoing[0]):
                        self._outgoing[0] = self._outgoing[0][sent:]
                    else:
                        self._outgoing.popleft()
            except WOULD_BLOCK:
                return

    def receive(self) -> list[ChannelResponse]:
        """Return the responses that are now complete. Those of an earlier call are no longer valid."""
        conversation = self._conversation
        answers: list[ChannelResponse] = []
        name = conversation.sent[0].spec.name if conversation.sent else "nothing"
        with self._failures_named(name, self.timeout):
            while not answers:
                try:
                    self._receive(conversation)
                except WOULD_BLOCK:
                    break
                self._heard = time.monotonic()
                while (answer := conversation.next_answer()) is not None:
                    answers.append(ChannelResponse(answer.context.about, answer.response))
        return answers

    def check_deadline(self) -> None:
        deadline = self.deadline()
        if deadline is not None and time.monotonic() > deadline:
            self.close()
            name = self._conversation.sent[0].spec.name
            raise TimedOut(f"{self.address} does not answer {name} within {self.timeout:g} s")
