"""Links that carry, stop carrying, and carry again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.testing.proxy import Link, Network, owner_of_connection, start_network


@pytest.fixture
def network() -> Iterator[Network]:
    with start_network() as network:
        yield network


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=copy, args=(connection,), daemon=True).start()

    def copy(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionResetError):
            while data := connection.recv(4096):
                connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_a_cut_holds_everything_back_until_it_is_joined(network: Network, echo: int) -> None:
    link = network.link(echo)
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection:
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        network.cut(link)
        connection.sendall(b"two")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        network.join(link)
        connection.settimeout(10)
        assert connection.recv(10) == b"two"


def test_a_cut_for_one_process_leaves_the_others_alone(network: Network, echo: int) -> None:
    link = network.link(echo)
    program = f"import socket; s = socket.create_connection(('127.0.0.1', {link.port})); s.sendall(b'x'); s.recv(1)"
    with subprocess.Popen([sys.executable, "-c", f"input(); {program}"], stdin=subprocess.PIPE) as other:
        network.cut(link, other.pid)
        assert other.stdin is not None
        other.stdin.write(b"\n")
        other.stdin.flush()
        with socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection:
            connection.sendall(b"mine")
            assert connection.recv(10) == b"mine"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
        network.join(link, other.pid)
        assert other.wait(10) == 0


def test_a_target_that_is_away_ends_the_connection(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    link = network.link(nobody)
    with (
        socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection,
        contextlib.suppress(ConnectionResetError),
    ):
        assert connection.recv(10) == b""


def test_connections_have_owners() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as another:
        target, other_target = one.getsockname()[1], another.getsockname()[1]
        with socket.socket() as mine:
            # Bind first: a port chosen by connecting may already be in use towards another address.
            mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            mine.bind(("127.0.0.1", 0))
            mine.connect(("127.0.0.1", target))
            port = mine.getsockname()[1]
            program = (
                "import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);"
                f"s.bind(('127.0.0.1', {port})); s.connect(('127.0.0.1', {other_target})); print(flush=True); input()"
            )
            with subprocess.Popen(
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None and process.stdout.readline()
                assert owner_of_connection(port, target) == os.getpid()
                assert owner_of_connection(port, other_target) == process.pid, "of the two that share a port"
                process.communicate(b"\n")
            assert owner_of_connection(port, other_target) is None


def test_a_reset_breaks_connections_and_the_next_is_carried(network: Network, echo: int) -> None:
    link = network.link(echo)
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection:
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        network.reset(link)
        with pytest.raises(ConnectionResetError):
            connection.recv(10)
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection:
        connection.sendall(b"two")
        assert connection.recv(10) == b"two"


def test_a_link_that_refuses_does_so_until_it_accepts_again(network: Network, echo: int) -> None:
    link = network.link(echo)
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection:
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        network.refuse(link)
        with pytest.raises(ConnectionResetError):
            connection.recv(10)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", link.port), timeout=10)
    network.accept(link)
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection:
        connection.sendall(b"two")
        assert connection.recv(10) == b"two"


def test_a_slow_link_carries_everything_in_order_and_later(network: Network, echo: int) -> None:
    link = network.link(echo)
    network.delay(link, 0.05)
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as connection:
        begun = time.monotonic()
        sent = b"".join(number.to_bytes(4, "big") for number in range(20_000))
        threading.Thread(target=connection.sendall, args=(sent,)).start()
        received = b""
        while len(received) < len(sent):
            received += connection.recv(65_536)
        assert received == sent
        assert time.monotonic() - begun >= 0.1


def test_resets_leave_nothing_behind(network: Network, echo: int) -> None:
    """Whatever a connection was about to do: a socket that is not closed fails the test."""
    link = network.link(echo)
    for _ in range(50):
        connections = [socket.create_connection(("127.0.0.1", link.port), timeout=10) for _ in range(3)]
        network.reset(link)
        for connection in connections:
            connection.close()
    network.refuse(link)
    gc.collect()


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_is_reset_twice_leaves_nothing_open(echo: int, turns: int) -> None:
    """The second reset comes some turns of the loop later, while the first one ends the connection."""

    async def reset_twice() -> None:
        link = Link("127.0.0.1", echo)
        await link.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        first = asyncio.ensure_future(link.reset())
        for _ in range(turns):
            await asyncio.sleep(0)
        await link.close()
        await first
        writer.transport.abort()

    asyncio.run(reset_twice())
    gc.collect()  # a stream that is still open is reported now, as an error
