"""Ranges of files on real sockets: order, slow readers, files that change."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from penstock.broker.net.file_sender import FileSender
from penstock.io.file_ranges import OpenFileRange
from penstock.model.file_range import RangeIsGone
from penstock.protocol.primitives import Part

CONTENT = random.Random(1).randbytes(3 * 1024 * 1024)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(CONTENT)
    descriptor = os.open(tmp_path / "file", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


class Ends:
    """Both ends of a connection, and what its sender reports."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sending, self.receiving = socket.socketpair()
        self.sending.setblocking(False)
        self.receiving.setblocking(False)
        self.sent = loop.create_future()
        self.failed = loop.create_future()
        self.sender = FileSender(
            loop,
            self.sending.fileno(),
            on_sent=lambda: self.sent.set_result(None),
            on_failed=lambda: self.failed.set_result(None),
        )

    async def receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            received += await asyncio.get_running_loop().sock_recv(self.receiving, min(100_000, size - len(received)))
        return received

    def receive_waiting(self) -> bytes:
        """Everything that has arrived."""
        received = b""
        try:
            while data := self.receiving.recv(1_000_000):
                received += data
        except BlockingIOError:
            pass
        return received

    def close(self) -> None:
        self.sender.close()
        self.sending.close()
        self.receiving.close()


def is_unread(ends: Ends) -> bool:
    return ends.sender.has_unread


def always() -> bool:
    return True


def test_parts_arrive_in_order_whether_the_reader_is_slow_or_not(file: int) -> None:
    async def run() -> None:
        ends = Ends(asyncio.get_running_loop())
        parts: list[Part] = [
            b"head",
            OpenFileRange(file, 10, 1_000_000, always),
            memoryview(b"middle"),
            OpenFileRange(file, 2_000_000, 100_000, always),
            bytearray(b"tail"),
        ]
        expected = b"head" + CONTENT[10:1_000_010] + b"middle" + CONTENT[2_000_000:2_100_000] + b"tail"
        assert not ends.sender.send(parts), "more than a socket takes"
        assert is_unread(ends)
        assert await ends.receive(len(expected)) == expected
        await ends.sent
        assert not is_unread(ends)
        assert ends.sender.send([b"next"])
        assert await ends.receive(4) == b"next"
        ends.close()

    uvloop.run(run())


def test_a_range_outlives_its_file(file: int, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    found = OpenFileRange(descriptor, 100, 50, always)
    os.close(descriptor)
    os.unlink(tmp_path / "file")
    assert found.read() == CONTENT[100:150]


def test_a_range_that_was_cut_meanwhile_is_sent_no_further(file: int) -> None:
    async def run() -> None:
        ends = Ends(asyncio.get_running_loop())
        is_current = True
        assert not ends.sender.send([OpenFileRange(file, 0, len(CONTENT), lambda: is_current)])
        is_current = False
        received = ends.receive_waiting()
        await ends.failed
        assert CONTENT.startswith(received)
        assert not ends.receive_waiting()
        ends.close()

    uvloop.run(run())


def test_a_range_behind_the_end_of_its_file_is_gone(file: int) -> None:
    async def run() -> None:
        ends = Ends(asyncio.get_running_loop())
        os.ftruncate(file, 1000)
        assert not ends.sender.send([OpenFileRange(file, 900, 200, always)])
        await ends.failed
        ends.close()

    uvloop.run(run())
    with pytest.raises(RangeIsGone):
        OpenFileRange(file, 900, 200, always).read()


def test_a_reader_that_goes_fails_the_sender(file: int) -> None:
    async def run() -> None:
        ends = Ends(asyncio.get_running_loop())
        assert not ends.sender.send([OpenFileRange(file, 0, len(CONTENT), always)])
        ends.receiving.close()
        await ends.failed
        ends.close()

    uvloop.run(run())
