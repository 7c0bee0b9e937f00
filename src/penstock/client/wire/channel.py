"""One connection with many requests under way: for reading and writing topics, where a round trip is too long to wait.

`send` queues a request and returns; `receive` takes what has arrived and gives whole answers, in the order of their
requests. Neither waits: a `Leaders` waits for all of its channels at once. Answers are decoded in the buffer they were
received in, and the next `receive` writes over it, so their records must have been used by then.

Like a `Connection`, a channel that failed is closed: what would come next is unknown.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import Any, NamedTuple

from penstock.client.errors import BadResponse, TimedOut, Unreachable
from penstock.client.wire.connection import _SPECS, CLIENT_ID, RESPONSE_BYTES_MAX, Connection
from penstock.protocol.apis import ApiKey, ApiSpec
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request

_LENGTH = struct.Struct(">i")
_FIRST_BUFFER_BYTES = 64 * 1024


class Answer(NamedTuple):
    about: Any  # what was given to `send`
    response: Any


class _Pending(NamedTuple):
    spec: ApiSpec
    version: int
    correlation_id: int
    deadline: float
    about: Any


class Channel(Connection):
    def __init__(self, host: str, port: int, *, timeout: float, client_id: str = CLIENT_ID) -> None:
        super().__init__(host, port, timeout=timeout, client_id=client_id)
        self._socket.setblocking(False)
        self._outgoing: deque[memoryview] = deque()
        self._pending: deque[_Pending] = deque()
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._frame_size: int | None = None  # None while the length of the next frame is being received
        self._received = 0
        self._heard = 0.0  # when bytes last came

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    @property
    def pending(self) -> int:
        """Requests that have not been answered."""
        return len(self._pending)

    def deadline(self) -> float | None:
        """Until when the peer must be heard of: an answer that arrives piece by piece takes the time it takes."""
        return max(self._pending[0].deadline, self._heard + self.timeout) if self._pending else None

    def send(self, message: Message, about: Any, *, newest: int | None = None, answered: bool = True) -> None:
        """Queue a request, in no later version than `newest`; `about` comes back with its answer.

        A Produce with acks=0 is not `answered`.
        """
        spec = _SPECS[type(message)]
        version = self.version(ApiKey(spec.key))
        version = version if newest is None else min(version, newest)
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        self._outgoing.append(memoryview(encode_request(message, version, correlation_id, self._client_id)))
        if answered:
            self._pending.append(_Pending(spec, version, correlation_id, time.monotonic() + self.timeout, about))
        self.flush()

    def flush(self) -> None:
        """Send as much of the queue as the socket takes."""
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing[0])
                if sent < len(self._outgoing[0]):
                    self._outgoing[0] = self._outgoing[0][sent:]
                else:
                    self._outgoing.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            raise self._lost(error) from error

    def receive(self) -> list[Answer]:
        """The answer that what has arrived completes, if it does; what an earlier call gave is no longer valid."""
        try:
            return self._receive_answer()
        except BlockingIOError:
            return []
        except OSError as error:
            raise self._lost(error) from error

    def check_deadline(self) -> None:
        deadline = self.deadline()
        if deadline is not None and time.monotonic() > deadline:
            self.close()
            raise TimedOut(f"{self.address} does not answer {self._pending[0].spec.name} within {self.timeout:g} s")

    def _receive_answer(self) -> list[Answer]:
        if self._frame_size is None:
            if not self._receive_up_to(_LENGTH.size):
                return []
            (size,) = _LENGTH.unpack_from(self._buffer)
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                self.close()
                raise BadResponse(f"{self.address} is not a Kafka broker: it announces a response of {size} bytes")
            if size > len(self._buffer):
                self._buffer = bytearray(size)
            self._frame_size = size
            self._received = 0
        if not self._receive_up_to(self._frame_size):
            return []
        frame = memoryview(self._buffer)[: self._frame_size]
        self._frame_size = None
        self._received = 0
        if not self._pending:
            self.close()
            raise BadResponse(f"{self.address} answers what was not asked")
        spec, version, correlation_id, _, about = self._pending.popleft()
        try:
            return [Answer(about, self._decode(spec, version, correlation_id, frame))]
        except MalformedMessage as error:
            self.close()
            raise BadResponse(f"{self.address} answers {spec.name} with bytes that are no Kafka response") from error

    def _receive_up_to(self, size: int) -> bool:
        view = memoryview(self._buffer)
        while self._received < size:
            received = self._socket.recv_into(view[self._received : size])
            if not received:
                self.close()
                raise Unreachable(f"{self.address} closed the connection")
            self._received += received
            self._heard = time.monotonic()
        return True

    def _lost(self, error: OSError) -> Unreachable:
        self.close()
        return Unreachable(f"lost the connection to {self.address}: {error.strerror or error}")
