"""Replies with ranges of files, on real sockets: their order, the end of a connection, and files that change."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.broker.net.connection import Connection, PendingReply
from penstock.broker.net.latency import Latency
from penstock.broker.net.server import ConnectionLimits, Listener
from penstock.io.file_ranges import OpenFileRange

CONTENT = random.Random(1).randbytes(16 * 1024 * 1024)  # more than sockets take at once
REQUEST = b"\0\0\0\x08" + bytes(8)


class Server:
    """Calls `answer` for each request."""

    def __init__(self, path: Path, answer: Callable[[Server, Connection], None]) -> None:
        path.write_bytes(CONTENT)
        self.file = path.open("rb")
        self.connections: list[Connection] = []
        self._answer = answer
        self.listener = Listener(
            "PLAINTEXT",
            loop=asyncio.get_running_loop(),
            handle=self._frame,
            handle_run=lambda connection, view, start, end: start,
            after_reads=lambda: None,
            limits=ConnectionLimits(10, 10, {}, 1000),
            request_bytes_max=1 << 20,
            small_request_bytes_max=1 << 20,
            parked_max=100,
            socket_buffers={},
            plain_latency=Latency("Produce"),
        )

    def _frame(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        self.connections.append(connection)
        self._answer(self, connection)

    def whole_file(self) -> OpenFileRange:
        return OpenFileRange(self.file.fileno(), 0, len(CONTENT), lambda: True)


def play(
    tmp_path: Path,
    answer: Callable[[Server, Connection], None],
    story: Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> None:
    async def run() -> None:
        server = Server(tmp_path / "file", answer)
        await server.listener.open("127.0.0.1", 0, backlog=10)
        await server.listener.serve()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
        writer.write(REQUEST)
        await story(server, reader, writer)
        writer.close()
        await server.listener.close()
        server.file.close()

    uvloop.run(run())


def send_file(server: Server, connection: Connection) -> None:
    connection.send([b"head", server.whole_file(), b"tail"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the state is the kernel's
            await asyncio.sleep(0)


def test_replies_that_are_ready_meanwhile_follow(tmp_path: Path) -> None:
    def answer(server: Server, connection: Connection) -> None:
        late = connection.park()
        asyncio.get_running_loop().call_soon(late.complete, [b"late"])
        send_file(server, connection)
        connection.send([b"small"])

    async def story(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        expected = b"late" + b"head" + CONTENT + b"tail" + b"small"
        assert await reader.readexactly(len(expected)) == expected
        writer.write(REQUEST)  # the connection reads on
        assert await reader.readexactly(4) == b"late"
        assert await reader.readexactly(4) == b"head"

    play(tmp_path, answer, story)


def test_what_the_transport_still_has_to_send_goes_first(tmp_path: Path) -> None:
    def answer(server: Server, connection: Connection) -> None:
        connection.send([CONTENT])
        connection.flush()
        send_file(server, connection)

    async def story(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        expected = CONTENT + b"head" + CONTENT + b"tail"
        assert await reader.readexactly(len(expected)) == expected

    play(tmp_path, answer, story)


def test_a_connection_that_is_closed_sends_its_files(tmp_path: Path) -> None:
    def answer(server: Server, connection: Connection) -> None:
        send_file(server, connection)
        connection.close()

    async def story(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"head" + CONTENT + b"tail"

    play(tmp_path, answer, story)


def test_a_change_of_records_closes_connections_that_have_not_received_them(tmp_path: Path) -> None:
    async def story(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await until(lambda: bool(server.connections))
        server.connections[0].rewritten()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(len(CONTENT) + 8)

    play(tmp_path, send_file, story)


def test_a_change_of_records_leaves_the_others_alone(tmp_path: Path) -> None:
    async def story(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert len(await reader.readexactly(len(CONTENT) + 8)) == len(CONTENT) + 8
        await until(lambda: not present_sender(server).has_unread)
        server.connections[0].rewritten()
        writer.write(REQUEST)
        assert await reader.readexactly(4) == b"head"

    def present_sender(server: Server) -> Any:
        return server.connections[0]._files

    play(tmp_path, send_file, story)


def test_a_connection_whose_files_cannot_be_sent_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply is ready when the replies of a turn leave, and there is no descriptor to send its file with."""
    parked: list[PendingReply] = []

    def answer(server: Server, connection: Connection) -> None:
        if not parked:
            parked.append(connection.park())
        else:
            connection.send([b"small"])

    def no_descriptor(*args: object, **named: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def story(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await until(lambda: bool(parked))
        server.listener.after_reads = lambda: parked[0].complete([b"head", server.whole_file()])
        monkeypatch.setattr("penstock.broker.net.connection.FileSender", no_descriptor)
        for _ in range(3):
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
            other_writer.write(REQUEST)
            async with asyncio.timeout(5):
                assert await other_reader.readexactly(5) == b"small"
            other_writer.close()
            server.listener.after_reads = lambda: None
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""

    play(tmp_path, answer, story)


def test_replies_leave_although_a_waiting_fetch_fails(tmp_path: Path) -> None:
    failed: list[object] = []

    async def story(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def fail() -> None:
            raise RuntimeError("a fetch failed")

        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))
        server.listener.after_reads = fail
        for _ in range(3):
            writer.write(REQUEST)
            async with asyncio.timeout(5):
                assert await reader.readexactly(5) == b"small"

    play(tmp_path, lambda server, connection: connection.send([b"small"]), story)
    assert failed
