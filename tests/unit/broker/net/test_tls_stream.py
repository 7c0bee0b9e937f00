"""A TLS stream between a client and a connection: whatever the pieces and pauses, the same bytes arrive in order."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.log_limiter import SparingLog
from penstock.broker.net.connection import Connection
from penstock.broker.net.tls import HandshakeRefused, TlsStream
from penstock.settings.tls import TlsSettings
from penstock.tls.authority import Authority
from penstock.tls.contexts import TlsContexts, client_context
from property_examples import examples

NOW = datetime.datetime.now(datetime.UTC)
CA = Authority.create("Test CA", NOW)
NODE = CA.issue("node-1", ["localhost"], NOW)
SERVER = TlsContexts(
    TlsSettings(
        ssl_keystore_key=NODE.key,
        ssl_keystore_certificate_chain=NODE.certificate,
        ssl_truststore_certificates=CA.certificate,
    )
)
CLIENT = client_context(TlsSettings(ssl_truststore_certificates=CA.certificate))


class Socket:
    """The transport of the socket: keeps what is written, until the client takes it."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_reading = True
        self.state = "open"

    def write(self, data: bytes) -> None:
        assert self.state == "open"
        self.written += data

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.state != "open"

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Receiver:
    """Stands for the connection: collects what arrives, in a buffer of any size."""

    peer_host = "client"

    def __init__(self, buffer_size: int) -> None:
        self.buffer = bytearray(buffer_size)
        self.received = bytearray()
        self.transport: TlsStream
        self.is_write_paused = False
        self.is_ended = False
        self.is_lost = False

    def connection_made(self, transport: TlsStream) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self.buffer[:count]

    def eof_received(self) -> bool:
        self.is_ended = True
        return False

    def pause_writing(self) -> None:
        assert not self.is_write_paused
        self.is_write_paused = True

    def resume_writing(self) -> None:
        assert self.is_write_paused
        self.is_write_paused = False


class Timer:
    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


class Loop:
    """Runs what is due soon when told to; what is due later only when its time is asked for."""

    def __init__(self) -> None:
        self.soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self.later: list[tuple[float, Callable[..., object]]] = []

    def call_soon(self, act: Callable[..., object], *arguments: object) -> None:
        self.soon.append((act, arguments))

    def call_later(self, seconds: float, act: Callable[..., object]) -> asyncio.Handle:
        entry = (seconds, act)
        self.later.append(entry)

        return cast(asyncio.Handle, Timer(lambda: self.later.remove(entry)))

    def run(self) -> None:
        while self.soon:
            act, arguments = self.soon.popleft()
            act(*arguments)


class Pair:
    def __init__(self, buffer_size: int = 1000, shaken: Callable[..., None] = lambda connection, tls: None) -> None:
        self.loop, self.socket, self.receiver = Loop(), Socket(), Receiver(buffer_size)
        self.stream = TlsStream(
            SERVER.accepting,
            cast(Connection, self.receiver),
            bytearray(5000),
            cast(asyncio.AbstractEventLoop, self.loop),
            failure_delay_s=0.1,
            shaken=shaken,
            complaints=SparingLog(logging.getLogger("test"), lambda: 0.0),
        )
        self.stream.connection_made(cast(asyncio.BaseTransport, self.socket))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = CLIENT.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.client_received = bytearray()

    def deliver(self, count: int = 5000) -> bool:
        """Move up to `count` bytes to the server, if it reads."""
        if not self.socket.is_reading or not self.outgoing.pending:
            return False
        data = self.outgoing.read(min(count, 5000))
        self.stream.get_buffer(-1)[: len(data)] = data
        self.stream.buffer_updated(len(data))
        return True

    def take(self) -> None:
        """The client reads what the server has sent."""
        self.incoming.write(bytes(self.socket.written))
        self.socket.written.clear()
        try:
            while data := self.client.read(65536):
                self.client_received += data
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass

    def shake(self) -> Pair:
        for _ in range(10):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            while self.deliver():
                pass
            self.incoming.write(bytes(self.socket.written))
            self.socket.written.clear()
        return self

    def settle(self) -> None:
        while self.deliver() or self.loop.soon:
            self.loop.run()
        self.take()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), st.integers(0, 40_000)),
        st.tuples(st.just("reply"), st.lists(st.integers(0, 300_000), min_size=1, max_size=4)),
        st.tuples(st.just("deliver"), st.integers(1, 5000)),
        st.tuples(st.just("take"), st.none()),
        st.tuples(st.just("hold"), st.booleans()),
        st.tuples(st.just("full"), st.booleans()),
        st.tuples(st.just("run"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=examples(60))
@given(STEPS, st.integers(1, 50_000))
def test_the_same_bytes_arrive_in_order(  # noqa: C901
    steps: list[tuple[str, Any]], buffer_size: int
) -> None:
    pair = Pair(buffer_size).shake()
    sent, replied, is_held, is_full = bytearray(), bytearray(), False, False
    for action, how in steps:
        if action == "request":
            data = (b"%d " % len(sent)) * (how // 4 + 1)
            pair.client.write(data)
            sent += data
        elif action == "reply":
            parts = [(b"%d," % (len(replied) + size)) * (size // 5 + 1) for size in how]
            replied += b"".join(parts)
            if len(parts) == 1:
                pair.stream.write(parts[0])
            else:
                pair.stream.writelines(parts)
        elif action == "deliver":
            pair.deliver(how)
        elif action == "take":
            pair.take()
        elif action == "hold" and how != is_held:
            is_held = how
            (pair.stream.pause_reading if how else pair.stream.resume_reading)()
        elif action == "full" and how != is_full:
            is_full = how
            (pair.stream.pause_writing if how else pair.stream.resume_writing)()
        elif action == "run":
            pair.loop.run()
        if is_held:
            assert not pair.socket.is_reading
    if is_held:
        pair.stream.resume_reading()
    if is_full:
        pair.stream.resume_writing()
    pair.settle()
    assert pair.receiver.received == sent
    assert pair.client_received == replied
    assert not pair.receiver.is_write_paused


def test_what_was_written_before_the_end_arrives_with_a_goodbye() -> None:
    pair = Pair().shake()
    pair.stream.pause_writing()
    pair.stream.write(b"x" * 100_000)
    pair.stream.close()
    assert pair.socket.state == "open"
    pair.stream.resume_writing()
    assert pair.socket.state == "closed"
    pair.take()
    assert pair.client_received == b"x" * 100_000
    assert pair.client.read(1) == b""  # the end, not a cut


def test_the_client_says_goodbye() -> None:
    pair = Pair().shake()
    pair.client.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.settle()
    assert pair.receiver.received == b"last words"
    assert (pair.receiver.is_ended, pair.socket.state) == (True, "closed")


def test_a_refused_client_is_closed_after_the_delay() -> None:
    def refuse(connection: object, tls: object) -> None:
        raise HandshakeRefused("no rule for CN=mallory")

    pair = Pair(shaken=refuse).shake()
    assert (pair.socket.state, pair.socket.is_reading) == ("open", False)
    ((seconds, close),) = pair.loop.later
    assert seconds == 0.1
    close()
    assert pair.socket.state == "aborted"
    assert pair.receiver.received == b""


def test_a_handshake_that_never_ends_is_closed() -> None:
    pair = Pair()
    ((seconds, close),) = pair.loop.later
    assert seconds == 60
    close()
    assert pair.socket.state == "aborted"


@given(st.binary(min_size=1, max_size=300))
def test_any_other_bytes_end_the_connection_or_wait_for_more(data: bytes) -> None:
    pair = Pair()
    pair.stream.get_buffer(-1)[: len(data)] = data
    pair.stream.buffer_updated(len(data))
    assert pair.receiver.received == b""
    assert len(pair.loop.later) == 1  # it waits for the rest of the handshake, or for the end


@given(st.binary(min_size=30, max_size=300))
def test_bad_bytes_after_the_handshake_end_the_connection(data: bytes) -> None:
    pair = Pair().shake()
    data = b"\x00" + data
    pair.stream.get_buffer(-1)[: len(data)] = data
    pair.stream.buffer_updated(len(data))
    assert pair.socket.state == "aborted"
    assert pair.receiver.received == b""
