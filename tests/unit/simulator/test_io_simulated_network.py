"""TCP in memory: what arrives, in what pieces, and what partitions, resets and deaths look like from either end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

import pytest

from penstock.simulator.twins.loop import SimulatedLoop, simulate
from waiting import wait_until_async

SEEDS = range(8)
Served = TypeVar("Served", bound=asyncio.BaseProtocol)


class BufferedEcho(asyncio.BufferedProtocol):
    """Sends back what it gets, out of a small buffer that it uses again and again."""

    def __init__(self) -> None:
        self.buffer = bytearray(1000)
        self.reads: list[int] = []
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.reads.append(nbytes)
        self.transport.write(bytes(self.buffer[:nbytes]))

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        self.ended = True
        return False


class Recorder(asyncio.Protocol):
    """Records the calls it gets, in order."""

    def __init__(self, *, keep_open: bool = False) -> None:
        self.events: list[str] = []
        self.received = bytearray()
        self.keep_open = keep_open
        self.lost: BaseException | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        if self.events[-1] != "data":
            self.events.append("data")
        self.received += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.events.append("lost")
        self.lost = exc
        self.closed.set_result(None)


async def serve(
    loop: SimulatedLoop, factory: Callable[[], Served], host: str = "server", bind: str = "0.0.0.0"
) -> list[Served]:
    """Start a server; the list fills with its protocols."""
    accepted: list[Served] = []
    ready = loop.create_future()

    def remembered() -> Served:
        accepted.append(factory())
        return accepted[-1]

    async def program() -> None:
        server = await loop.create_server(remembered, bind, 9092)
        ready.set_result(None)
        await server.serve_forever()

    loop.start(host, program())
    await ready
    return accepted


async def connect(loop: SimulatedLoop, host: str = "server", **options: bool) -> Recorder:
    _, protocol = await loop.create_connection(lambda: Recorder(**options), host, 9092)
    assert isinstance(protocol, Recorder)
    return protocol


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_come_back_in_order_however_they_are_cut(seed: int) -> None:
    async def program(loop: SimulatedLoop) -> None:
        echoes = await serve(loop, BufferedEcho)
        client = await connect(loop)
        data = bytes(number * 7 % 256 for number in range(60_000))
        for start in range(0, len(data), 7000):
            client.transport.writelines([data[start : start + 10], data[start + 10 : start + 7000]])
        await wait_until_async(lambda: len(client.received) == len(data))
        assert client.received == data
        echo = echoes[0]
        assert isinstance(echo, BufferedEcho)
        assert len(set(echo.reads)) > 2, "the stream was never cut"
        client.transport.write_eof()
        await client.closed
        assert echo.ended
        assert client.events[0] == "made"
        assert client.events[-2:] == ["eof", "lost"]
        assert client.lost is None

    simulate(program, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_asyncio_streams_run_on_it(seed: int) -> None:
    async def program(loop: SimulatedLoop) -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        async def node() -> None:
            server = await asyncio.start_server(handle, "0.0.0.0", 9092)
            assert server.sockets[0].getsockname() == ("server", 9092)
            async with server:
                await server.serve_forever()

        loop.start("server", node())
        await asyncio.sleep(1)
        reader, writer = await asyncio.open_connection("server", 9092)
        writer.write(b"one\ntwo\n" + b"x" * 30_000 + b"\n")
        writer.write_eof()
        assert await reader.read() == b"ONE\nTWO\n" + b"X" * 30_000 + b"\n"
        writer.close()
        await writer.wait_closed()

    simulate(program, seed)


def test_addresses_are_shown() -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, Recorder)

        async def from_a_client() -> None:
            client = await connect(loop)
            assert client.transport.get_extra_info("peername") == ("server", 9092)
            host, port = client.transport.get_extra_info("sockname")
            assert host == "client"
            client.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await wait_until_async(lambda: bool(accepted))
            there = accepted[0]
            assert there.transport.get_extra_info("peername") == ("client", port)
            assert client.transport.get_extra_info("sockname") == ("client", port)
            client.transport.close()

        await loop.start("client", from_a_client())

    simulate(program)


def test_loopback_stays_on_the_host() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, Recorder, bind="127.0.0.1")
        with pytest.raises(ConnectionRefusedError):
            await connect(loop)

        async def local(loop: SimulatedLoop) -> None:
            server = await loop.create_server(Recorder, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            transport, _ = await loop.create_connection(Recorder, "localhost", port)
            assert transport.get_extra_info("peername") == ("127.0.0.1", port)
            transport.close()
            server.close()

        await loop.start("other", local(loop))

    simulate(program)


def test_nobody_listens_there() -> None:
    async def program(loop: SimulatedLoop) -> None:
        loop.network.add_host("server")
        with pytest.raises(ConnectionRefusedError):
            await connect(loop)
        with pytest.raises(socket.gaierror):
            await connect(loop, "no-such-host")
        await serve(loop, Recorder)
        with pytest.raises(OSError, match="in use"):
            await asyncio.wait_for(_bind_again(loop), 1)

    async def _bind_again(loop: SimulatedLoop) -> None:
        loop.network.listen("server", 9092, object())  # type: ignore[arg-type]

    simulate(program)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_that_stops_makes_the_writer_stop(seed: int) -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, Recorder)
        client = await connect(loop)
        await wait_until_async(lambda: bool(accepted))
        server = accepted[0]
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=10_000, low=1_000)
        sent = 0
        while client.transport.get_write_buffer_size() <= 10_000:
            client.transport.write(b"x" * 5_000)
            sent += 5_000
            await asyncio.sleep(0.1)
        assert client.events == ["made", "pause"]
        at_rest = len(server.received)
        await asyncio.sleep(600)
        assert len(server.received) == at_rest
        server.transport.resume_reading()
        await wait_until_async(lambda: len(server.received) == sent)
        assert client.events == ["made", "pause", "resume"]

    simulate(program, seed)


def test_what_is_written_is_not_copied_at_once() -> None:
    """As with uvloop: a buffer that is changed right after `write` is sent changed. The test pins the trap."""

    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, Recorder)
        client = await connect(loop)
        buffer = bytearray(b"good")
        client.transport.write(buffer)
        buffer[:] = b"evil"
        await wait_until_async(lambda: bool(accepted) and len(accepted[0].received) == 4)
        assert accepted[0].received == b"evil"

    simulate(program)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_delays_and_loses_nothing(seed: int) -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, BufferedEcho)

        async def node() -> None:
            client = await connect(loop)
            client.transport.write(b"before")
            await wait_until_async(lambda: client.received == b"before")
            loop.network.partition(["client"], ["server"])
            client.transport.write(b"during")
            await asyncio.sleep(300)
            assert client.received == b"before"
            loop.network.heal()
            await wait_until_async(lambda: client.received == b"beforeduring", seconds=5)

        await loop.start("client", node())

    simulate(program, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_direction_can_be_cut_alone(seed: int) -> None:
    async def program(loop: SimulatedLoop) -> None:
        loop.network.window_sizes = (2_048, 16_384)
        accepted = await serve(loop, BufferedEcho)

        async def node() -> None:
            client = await connect(loop)
            client.transport.write(b"1")
            await wait_until_async(lambda: client.received == b"1")
            loop.network.cut("server", "client")
            client.transport.write(b"2")
            echo = accepted[0]
            await wait_until_async(lambda: sum(echo.reads) == 2, seconds=5)
            await asyncio.sleep(60)
            assert client.received == b"1", "the answer cannot come back"
            client.transport.write(b"3" * 200_000)
            await asyncio.sleep(60)
            assert client.transport.get_write_buffer_size() > 0, "without acknowledgements the window stays full"
            loop.network.heal()
            await wait_until_async(lambda: len(client.received) == 200_002, seconds=600)

        await loop.start("client", node())

    simulate(program, seed)


def test_links_are_mended_one_by_one() -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, BufferedEcho)

        async def node() -> None:
            client = await connect(loop)
            echo = accepted[0]
            loop.network.partition(["client"], ["server"])
            client.transport.write(b"1")
            await asyncio.sleep(1)
            loop.network.mend("client", "server")
            await wait_until_async(lambda: echo.reads == [1], seconds=5)
            await asyncio.sleep(1)
            assert not client.received
            loop.network.mend("server", "client")
            await wait_until_async(lambda: client.received == b"1", seconds=5)

        await loop.start("client", node())

    simulate(program)


def test_a_partition_that_lasts_breaks_the_connection() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, Recorder)

        async def node() -> None:
            client = await connect(loop)
            loop.network.partition(["client"], ["server"])
            begin = loop.time()
            while not client.closed.done():
                client.transport.write(b"x")
                await asyncio.sleep(1)
            assert isinstance(client.lost, TimeoutError)
            assert loop.time() - begin == pytest.approx(900, abs=10)
            begin = loop.time()
            with pytest.raises(TimeoutError):
                await connect(loop)
            assert loop.time() - begin == pytest.approx(127)

        await loop.start("client", node())

    simulate(program)


def test_connecting_goes_through_once_the_partition_heals() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, Recorder)

        async def node() -> None:
            loop.network.isolate("server")
            loop.call_later(10, loop.network.heal)
            begin = loop.time()
            await connect(loop)
            assert 10 <= loop.time() - begin < 20

        await loop.start("client", node())

    simulate(program)


def test_giving_up_on_a_connection_leaves_none_behind() -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, Recorder)
        loop.network.latency = lambda source, target: 1.0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await connect(loop)
        await wait_until_async(lambda: bool(accepted))
        server = accepted[0]
        await server.closed
        assert isinstance(server.lost, ConnectionResetError)

    simulate(program)


def test_resets_reach_both_ends() -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, Recorder)

        async def node() -> None:
            client = await connect(loop)
            await wait_until_async(lambda: bool(accepted))
            loop.network.reset("server", "client")
            await client.closed
            assert isinstance(client.lost, ConnectionResetError)
            server = accepted[0]
            await server.closed
            assert isinstance(server.lost, ConnectionResetError)

        await loop.start("client", node())

    simulate(program)


def test_random_resets_happen() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, BufferedEcho)
        loop.network.reset_rate = 0.1
        client = await connect(loop)
        while not client.closed.done():
            client.transport.write(b"x" * 100)
            await asyncio.sleep(0.1)
        assert isinstance(client.lost, ConnectionResetError)

    simulate(program)


def test_closing_with_unread_bytes_resets() -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, Recorder)
        client = await connect(loop)
        await wait_until_async(lambda: bool(accepted))
        server = accepted[0]
        server.transport.pause_reading()
        client.transport.write(b"never read")
        await asyncio.sleep(1)
        server.transport.close()
        await client.closed
        assert isinstance(client.lost, ConnectionResetError)

    simulate(program)


@pytest.mark.parametrize("seed", SEEDS)
def test_close_sends_what_was_written_and_abort_need_not(seed: int) -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, Recorder)
        client = await connect(loop)
        client.transport.write(b"x" * 1_500_000)
        client.transport.close()
        assert client.transport.is_closing()
        await client.closed
        server = accepted[0]
        await server.closed
        assert len(server.received) == 1_500_000
        assert server.events == ["made", "data", "eof", "lost"]

        other = await connect(loop)
        other.transport.write(b"y" * 1_500_000)
        other.transport.abort()
        other.transport.write(b"into the void")
        await other.closed
        assert other.events[-1] == "lost"
        assert other.lost is None
        await wait_until_async(lambda: len(accepted) == 2)
        aborted = accepted[1]
        await aborted.closed
        assert len(aborted.received) < 1_500_000

    simulate(program, seed)


def test_half_closed_connections_can_still_be_written() -> None:
    async def program(loop: SimulatedLoop) -> None:
        accepted = await serve(loop, lambda: Recorder(keep_open=True))
        client = await connect(loop)
        client.transport.write(b"question")
        client.transport.write_eof()
        with pytest.raises(RuntimeError):
            client.transport.write(b"more")
        await wait_until_async(lambda: bool(accepted) and "eof" in accepted[0].events)
        server = accepted[0]
        server.transport.write(b"answer")
        server.transport.close()
        await client.closed
        assert client.received == b"answer"

    simulate(program)


def test_a_protocol_that_raises_loses_its_connection_only() -> None:
    class Broken(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError("on purpose")

    async def program(loop: SimulatedLoop) -> None:
        reported: list[object] = []
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        accepted = await serve(loop, Broken)
        client = await connect(loop)
        client.transport.write(b"x")
        await client.closed
        server = accepted[0]
        assert isinstance(server.lost, ValueError)
        assert reported == [server.lost]
        again = await connect(loop)
        assert not again.closed.done()

    simulate(program)


def test_a_killed_process_hangs_up_and_a_dead_machine_does_not() -> None:
    async def program(loop: SimulatedLoop) -> None:
        await serve(loop, BufferedEcho)
        client = await connect(loop)
        loop.kill("server")
        await client.closed
        with pytest.raises(ConnectionRefusedError):
            await connect(loop)

        await serve(loop, BufferedEcho)
        client = await connect(loop)
        loop.power_off("server")
        client.transport.write(b"anybody there?")
        await asyncio.sleep(600)
        assert not client.closed.done()
        loop.network.power_on("server")
        await client.closed
        assert isinstance(client.lost, ConnectionResetError)

        await serve(loop, BufferedEcho)
        client = await connect(loop)
        client.transport.write(b"x")
        await wait_until_async(lambda: client.received == b"x")

    simulate(program)


def test_connections_race_but_one_connection_never_does() -> None:
    async def program(loop: SimulatedLoop) -> list[bytes]:
        order: list[bytes] = []

        class Ordered(Recorder):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                order.append(bytes(data[:1]))

        await serve(loop, Ordered)
        clients = [await connect(loop) for _ in range(5)]
        for number, client in enumerate(clients):
            client.transport.write(b"%d" % number)
        await wait_until_async(lambda: len(order) == 5)
        return order

    orders = {tuple(simulate(program, seed)) for seed in range(10)}
    assert len(orders) > 1
