"""A connection handles its frames one after the other, and holds them back as long as there is a reason to."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.broker.net import connection as connections
from penstock.broker.net.connection import Connection, PendingReply
from penstock.broker.net.latency import Latency
from penstock.broker.net.server import ConnectionLimits, Listener
from penstock.simulator.twins.loop import SimulatedLoop, simulate

PORT = 9092
PARKED_MAX = 3
Handle = Callable[["Server", Connection, str], None]


def frame(request: str) -> bytes:
    return struct.pack(">i", len(request)) + request.encode()


def line(text: str) -> bytes:
    return text.encode() + b"\n"


class Server:
    """A listener whose requests are text. `handle` decides what to do with each."""

    def __init__(self, loop: SimulatedLoop, handle: Handle) -> None:
        self.handled: list[str] = []
        self.parked: dict[str, PendingReply] = {}
        self.connection: Connection | None = None
        self._handle = handle
        self.listener = Listener(
            "PLAINTEXT",
            loop=loop,
            handle=self._frame,
            handle_run=lambda connection, view, start, end: start,
            after_reads=lambda: None,
            limits=ConnectionLimits(10, 10, {}, 1000),
            request_bytes_max=1 << 20,
            small_request_bytes_max=1 << 20,
            parked_max=PARKED_MAX,
            socket_buffers={},
            plain_latency=Latency("Produce"),
        )

    def _frame(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        self.connection = connection
        request = bytes(view[start:end]).decode()
        self.handled.append(request)
        self._handle(self, connection, request)

    async def open(self) -> None:
        await self.listener.open("0.0.0.0", PORT, backlog=10)
        await self.listener.serve()

    def answer(self, *requests: str) -> None:
        for request in requests:
            self.parked[request].complete([line(request)])


class Client:
    """Sends requests, and reads the lines that answer them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def send(self, *requests: str) -> None:
        """In one write."""
        self.send_bytes(b"".join(map(frame, requests)))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()

    async def answers(self, count: int) -> list[str]:
        return [(await self.reader.readline()).decode().strip() for _ in range(count)]


def play(handle: Handle, story: Callable[[Server, Client], Coroutine[Any, Any, None]]) -> None:
    async def program(loop: SimulatedLoop) -> None:
        server = Server(loop, handle)
        await loop.start("server", server.open())
        client = Client(*await asyncio.open_connection("server", PORT))
        await story(server, client)
        client.close()
        await server.listener.close()

    simulate(program)


async def settle() -> None:
    """Until everything that was sent has arrived. The loop's time is virtual."""
    await asyncio.sleep(1)


def echo(server: Server, connection: Connection, request: str) -> None:
    connection.send([line(request)])


def park(server: Server, connection: Connection, request: str) -> None:
    server.parked[request] = connection.park()


def mute(server: Server, connection: Connection, request: str) -> None:
    server.parked[request] = connection.park(mute=True)


def quiet(server: Server, connection: Connection, request: str) -> None:
    server.parked[request] = connection.park_quiet()


def mute_and_answer(server: Server, connection: Connection, request: str) -> None:
    mute(server, connection, request)
    assert server.handled[-1] == request
    server.answer(request)
    assert server.handled[-1] == request, "the answer made the connection handle the next frame within this one"


def throttle(server: Server, connection: Connection, request: str) -> None:
    connection.send([line(request)])
    connection.throttle(10_000)


FOUR = [f"request-{number}" for number in range(4)]


def test_frames_of_one_read_are_answered_in_order() -> None:
    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR)
        assert await client.answers(4) == FOUR == server.handled

    for handle in (echo, mute_and_answer):
        play(handle, story)


def test_a_frame_may_arrive_byte_by_byte() -> None:
    async def story(server: Server, client: Client) -> None:
        for byte in frame(FOUR[0]):
            client.send_bytes(bytes([byte]))
            await settle()
        assert await client.answers(1) == FOUR[:1]

    play(echo, story)


def test_a_muting_request_holds_back_those_behind_it() -> None:
    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR[:3])
        await settle()
        client.send(FOUR[3])  # arrives while nothing is read
        await settle()
        for number, request in enumerate(FOUR):
            assert server.handled == FOUR[: number + 1]
            server.answer(request)
            assert await client.answers(1) == [request]
            await settle()

    for handle in (mute, quiet):
        play(handle, story)


def test_reading_goes_on_beside_a_quiet_request_until_something_arrives() -> None:
    async def story(server: Server, client: Client) -> None:
        def is_reading() -> bool:
            assert server.connection is not None and server.connection.transport is not None
            return server.connection.transport.is_reading()

        client.send(FOUR[0])
        await settle()
        assert is_reading()
        client.send(FOUR[1])
        await settle()
        assert not is_reading()
        assert server.handled == FOUR[:1]
        server.answer(FOUR[0])
        assert server.handled == FOUR[:2]
        server.answer(FOUR[1])
        assert await client.answers(2) == FOUR[:2]
        assert is_reading()

    play(quiet, story)


def test_as_many_requests_are_parked_as_the_limit_allows() -> None:
    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR)
        await settle()
        assert server.handled == FOUR[:PARKED_MAX]
        assert server.listener.limits.parked == PARKED_MAX
        server.answer(*FOUR[1:PARKED_MAX])  # behind the first: they free no place
        await settle()
        assert server.handled == FOUR[:PARKED_MAX]
        server.answer(FOUR[0])
        await settle()
        assert server.handled == FOUR
        server.answer(FOUR[3])
        assert await client.answers(4) == FOUR
        assert server.listener.limits.parked == 0

    play(park, story)


def test_a_throttled_client_gets_its_answer_and_waits() -> None:
    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR[:2])
        assert await client.answers(1) == FOUR[:1]
        await settle()
        assert server.handled == FOUR[:1]
        assert server.connection is not None and server.connection.is_throttled
        assert await client.answers(1) == FOUR[1:2]

    play(throttle, story)


def test_all_reasons_to_hold_frames_back_must_be_gone() -> None:
    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR)
        await settle()
        connection = server.connection
        assert connection is not None and server.handled == FOUR[:1]
        connection.throttle(5_000)
        connection.pause_writing()
        server.answer(FOUR[0])
        await settle()
        assert server.handled == FOUR[:1]
        await asyncio.sleep(10)
        assert server.handled == FOUR[:1] and not connection.is_throttled
        connection.resume_writing()
        assert server.handled == FOUR[:2]

    for handle in (mute, quiet):
        play(handle, story)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    size = 256 * 1024

    def large(server: Server, connection: Connection, request: str) -> None:
        connection.send([line(request.ljust(size))])

    async def story(server: Server, client: Client) -> None:
        requests = [f"request-{number:03}" for number in range(100)]
        client.send(*requests)
        await settle()
        assert len(server.handled) < len(requests)
        assert [(await client.reader.readexactly(size + 1)).decode().strip() for _ in requests] == requests

    play(large, story)


def test_a_handler_that_closes_leaves_the_frames_behind_it() -> None:
    def close(server: Server, connection: Connection, request: str) -> None:
        connection.send([line(request)])
        connection.close()

    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR)
        assert await client.reader.read() == line(FOUR[0])
        assert server.handled == FOUR[:1]

    play(close, story)


def test_nothing_is_sent_after_an_abort() -> None:
    def abort(server: Server, connection: Connection, request: str) -> None:
        mute(server, connection, request)
        server.answer(request)
        connection.abort()

    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR)
        with contextlib.suppress(ConnectionResetError):
            assert await client.reader.read() == b""
        assert server.handled == FOUR[:1]
        assert server.connection is not None and server.connection.is_closed
        assert server.listener.limits.parked == 0
        assert not server.listener.connections

    play(abort, story)


def test_a_request_of_a_lost_client_is_answered_to_nobody() -> None:
    async def story(server: Server, client: Client) -> None:
        client.send(*FOUR)
        await settle()
        connection = server.connection
        assert connection is not None
        connection.throttle(1_000)
        client.close()
        await settle()
        connection.abort()
        await settle()
        server.answer(FOUR[0])
        await asyncio.sleep(10)
        assert not server.parked[FOUR[0]].is_wanted
        assert server.handled == FOUR[:1]
        assert server.listener.limits.parked == 0

    for handle in (mute, quiet):
        play(handle, story)


def test_announced_lengths_claim_no_memory_while_much_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TRUSTED_TOTAL", 1 << 20)
    request = "x" * (1 << 19)

    async def story(server: Server, client: Client) -> None:
        limits = server.listener.limits
        others = [Client(*await asyncio.open_connection("server", PORT)) for _ in range(8)]
        for other in others:
            other.send_bytes(frame(request)[:100])
        await settle()
        assert limits.buffered < 2 << 20
        for start in range(100, len(request) + 4, 100_000):
            for other in others:
                other.send_bytes(frame(request)[start : start + 100_000])
            await settle()
        for other in others:
            assert await other.answers(1) == ["done"]
            other.close()
        assert server.handled == [request] * len(others)
        await settle()
        assert limits.buffered == 0

    def answer(server: Server, connection: Connection, request: str) -> None:
        connection.send([line("done")])

    play(answer, story)
