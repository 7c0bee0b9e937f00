"""TLS under a client connection: decrypts what a socket receives, and encrypts what the connection sends.

A `TlsStream` is the protocol of the socket and the transport of a `Connection`, which does not notice it. Compared with
`create_server(ssl=...)`:

- The connection exists, and counts against the limits, before the handshake: connections that never finish it are
  refused and closed like all others.
- All streams of a process receive into one shared buffer, and decrypt into the connections' shared buffer. asyncio and
  uvloop allocate a quarter of a megabyte for each TLS connection; here an idle one costs what OpenSSL needs.
- Replies are encrypted only as fast as the socket takes them, so a large fetch response is not in memory twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from penstock.broker.log_limiter import SparingLog
from penstock.broker.net.connection import Connection
from penstock.io.files import Buffer

HANDSHAKE_TIMEOUT_S: Final = 60.0
ENCRYPT_BYTES: Final = 256 * 1024  # this much is encrypted before the socket is asked whether it takes more
JOIN_BELOW: Final = 4096  # smaller parts are joined: each call makes a TLS record of its own


class HandshakeRefused(Exception):
    """The certificate of the client is good, and the client is refused nevertheless."""


class TlsStream(asyncio.BufferedProtocol):
    def __init__(
        self,
        context: ssl.SSLContext,
        connection: Connection,
        receive_buffer: bytearray,
        loop: asyncio.AbstractEventLoop,
        failure_delay_s: float,
        shaken: Callable[[Connection, ssl.SSLObject], None],
        complaints: SparingLog,
    ) -> None:
        """`shaken` is called when the handshake is complete; it may raise HandshakeRefused.

        A failed handshake closes the connection after `failure_delay_s`, so that trying is slow.
        """
        self._connection = connection
        self._loop = loop
        self._failure_delay_s = failure_delay_s
        self._shaken = shaken
        self._complaints = complaints
        self._receive_buffer = receive_buffer
        self._receive_view = memoryview(receive_buffer)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport = cast(asyncio.Transport, None)  # until connection_made
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._is_shaken = False
        self._is_failed = False
        self._is_closing = False
        self._is_reading = True
        self._is_raw_paused = False
        self._is_connection_paused = False
        self._pending: deque[memoryview] = deque()  # to be encrypted and sent

    # -- protocol of the socket ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._handshake_timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self._handshake_is_late)
        self._connection.connection_made(cast(asyncio.BaseTransport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._is_closing = True
        self._pending.clear()
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_failed:
            return
        self._incoming.write(self._receive_view[:nbytes])
        self._go_on()

    def eof_received(self) -> bool:
        if self._is_shaken and not self._is_closing:
            self._connection.eof_received()
        return False

    def pause_writing(self) -> None:
        self._is_raw_paused = True
        self._pause_connection()

    def resume_writing(self) -> None:
        self._is_raw_paused = False
        self._send_pending()

    # -- handshake ----------------------------------------------------------------------------------------------------

    def _shake(self) -> bool:
        """Go on with the handshake; True once it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            return False
        except ssl.SSLError as error:
            self._refuse(error.reason or str(error))
            return False
        try:
            self._shaken(self._connection, self._tls)
        except HandshakeRefused as error:
            self._refuse(str(error))
            return False
        self._is_shaken = True
        self._stop_timer()
        self._send_encrypted()
        return True

    def _refuse(self, reason: str) -> None:
        self._complaints.log(
            logging.WARNING, "refusing %s: the TLS handshake failed: %s", self._connection.peer_host, reason
        )
        self._is_failed = True
        self._stop_timer()
        self._send_encrypted()  # the alert that tells the client why
        self._raw.pause_reading()
        self._loop.call_later(self._failure_delay_s, self._raw.abort)

    def _handshake_is_late(self) -> None:
        self._complaints.log(
            logging.WARNING,
            "closing %s: no TLS handshake within %g s",
            self._connection.peer_host,
            HANDSHAKE_TIMEOUT_S,
        )
        self._raw.abort()

    def _stop_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if not self._is_shaken and not self._shake():
            return
        connection = self._connection
        read = self._tls.read
        while self._is_reading and not self._is_closing:
            target = memoryview(connection.get_buffer(-1))
            filled, capacity, is_ended = 0, len(target), False
            try:
                while filled < capacity:  # one call decrypts one record, of at most 16 KiB
                    count = int(read(capacity - filled, target[filled:]))  # with a buffer, it returns the count
                    if not count:
                        is_ended = True
                        break
                    filled += count
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                is_ended = True
            except ssl.SSLError as error:
                reason = error.reason or str(error)
                self._complaints.log(logging.WARNING, "closing %s: bad TLS data: %s", connection.peer_host, reason)
                self._raw.abort()
                return
            if filled:
                connection.buffer_updated(filled)
            if is_ended:
                connection.eof_received()
                self.close()
                return
            if filled < capacity:
                break
        if self._outgoing.pending:  # an answer of the protocol itself, such as a key update
            self._send_encrypted()

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_encrypted(self) -> None:
        data = self._outgoing.read()
        if data and not self._raw.is_closing():
            self._raw.write(data)

    def _send_pending(self) -> None:
        pending = self._pending
        while pending and not self._is_raw_paused:
            budget = ENCRYPT_BYTES
            while pending and budget > 0:
                part = pending.popleft()
                if len(part) > budget:
                    pending.appendleft(part[budget:])
                    part = part[:budget]
                self._tls.write(part)
                budget -= len(part)
            self._send_encrypted()
        if pending:
            self._pause_connection()
            return
        if self._is_connection_paused and not self._is_raw_paused:
            self._is_connection_paused = False
            self._connection.resume_writing()
        if self._is_closing:
            self._end()

    def _pause_connection(self) -> None:
        if not self._is_connection_paused:
            self._is_connection_paused = True
            self._connection.pause_writing()

    def _end(self) -> None:
        """Say goodbye: without it, a client could not tell the end of the stream from a cut."""
        if self._is_shaken and not self._raw.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the client's own goodbye is not awaited
                self._tls.unwrap()
            self._send_encrypted()
        self._raw.close()

    # -- transport of the connection ----------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        if self._is_closing:
            return
        if self._pending or self._is_raw_paused or len(data) > ENCRYPT_BYTES:
            self._pending.append(memoryview(data))
            self._send_pending()
        else:
            self._tls.write(data)
            self._send_encrypted()

    def writelines(self, parts: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        small: list[Buffer] = []
        for part in parts:
            if len(part) < JOIN_BELOW:
                small.append(part)
                continue
            self._join(small)
            self._pending.append(memoryview(part))
        self._join(small)
        self._send_pending()

    def _join(self, small: list[Buffer]) -> None:
        if small:
            self._pending.append(memoryview(b"".join(small)))
            small.clear()

    def pause_reading(self) -> None:
        self._is_reading = False
        if not self._is_failed:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        if not self._is_failed and not self._raw.is_closing():
            self._raw.resume_reading()
            if self._incoming.pending or self._tls.pending():
                self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        if not self._raw.is_closing() and self._is_shaken:
            self._go_on()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._pending:
            self._end()

    def abort(self) -> None:
        self._is_closing = True
        self._pending.clear()
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._is_closing or self._raw.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._raw.get_extra_info(name, default)
