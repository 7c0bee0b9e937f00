"""Timers that several waiting requests share, on the loop of a broker: one whose time has come has no `when` there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from penstock.broker.net.connection import Connection, PendingReply
from penstock.broker.net.latency import Latency
from penstock.broker.net.server import ConnectionLimits, Listener
from penstock.broker.partitions.follower_sessions import FollowerSession
from penstock.broker.partitions.wakeups import Wakeups
from penstock.broker.shares.served_partition import ServedPartition


def play(story: Any) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


class Expiring(PendingReply):
    def expire(self) -> None:
        self.complete([b"late"])


def test_requests_that_may_not_wait() -> None:
    """As of a producer that sends two requests with a timeout of 0 in one write."""

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def handle(connection: Connection, view: memoryview, start: int, end: int) -> None:
            connection.park_until(Expiring(connection), loop.time() - 0.001)

        listener = Listener(
            "PLAINTEXT",
            loop=loop,
            handle=handle,
            handle_run=lambda connection, view, start, end: start,
            after_reads=lambda: None,
            limits=ConnectionLimits(10, 10, {}, 1000),
            request_bytes_max=1 << 20,
            small_request_bytes_max=1 << 20,
            parked_max=100,
            socket_buffers={},
            plain_latency=Latency("Produce"),
        )
        await listener.open("127.0.0.1", 0, backlog=10)
        await listener.serve()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write((b"\0\0\0\x08" + bytes(8)) * 2)
        assert await asyncio.wait_for(reader.readexactly(8), 10) == b"latelate"
        writer.close()
        await writer.wait_closed()
        await listener.close()

    play(story)


class Fetch:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.is_over = asyncio.Event()

    def expire(self) -> None:
        self.is_over.set()


def test_a_follower_whose_wait_is_cut_short_twice() -> None:
    """As by elections that follow each other: its fetches must be answered at once."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        session = FollowerSession(1, 1, True, loop, Wakeups(loop), tells_commits_at_once=False)
        fetch = Fetch(loop.time() + 1000)
        session.wait(cast(Any, fetch))
        for _ in range(2):
            fetch.deadline = loop.time()
            session.wait(cast(Any, fetch))
        await asyncio.wait_for(fetch.is_over.wait(), 10)
        session.waiting = None
        following = Fetch(loop.time() + 1000)
        session.wait(cast(Any, following))
        following.deadline = loop.time() + 0.01
        session.wait(cast(Any, following))
        await asyncio.wait_for(following.is_over.wait(), 10)

    play(story)


def test_locks_that_end_now() -> None:
    """Records of a share group: their states change again before the loop looks at the locks that have ended."""

    class Core:
        wake_at_ms: int | None = 0
        expirations = 0

        def __init__(self) -> None:
            self.expired = asyncio.Event()

        def expire(self, now_ms: int) -> None:
            self.wake_at_ms = None
            self.expirations += 1
            self.expired.set()

    async def story() -> None:
        loop, clock = asyncio.get_running_loop(), SimpleNamespace(now_ms=lambda: 0)
        replica = SimpleNamespace(leader_epoch=1, waiting_fetches={})
        unused = cast(Any, None)
        partition = ServedPartition(
            unused,
            cast(Any, replica),
            unused,
            settings=unused,
            loop=loop,
            clock=cast(Any, clock),
            dead_letters=unused,
            count=unused,
            lost=unused,
        )
        core = Core()
        partition.core = cast(Any, core)
        partition.changed()
        partition.changed()
        await asyncio.wait_for(core.expired.wait(), 10)
        assert core.expirations == 1

    play(story)
