"""Many connections: what they may take of the broker's files and memory, and whom they must not keep out."""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.client.wire.admin import Admin
from penstock.local.ports import free_ports
from penstock.model.errors import ErrorCode
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until
from wire import Wire, batch, create_topic, produce


def open_files(node: RunningNode) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


@contextmanager
def flood(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(count)]


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_connections_do_not_get_the_last_files(tmp_path: Path) -> None:
    with start_node(tmp_path) as node, Wire(node) as wire:
        create_topic(wire, "before")
        limit = open_files(node) + 60
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with flood((node.host, node.port), 2 * limit) as connections:
            wait_until(lambda: sum(map(is_closed, connections)) >= limit + limit // 4, "further ones are closed")
            assert open_files(node) <= limit - limit // 4
            # A broker that cannot open its metadata log to sync it stops.
            create_topic(wire, "meanwhile")
            for topic in ("before", "meanwhile"):
                assert produce(wire, topic, batch("a")).error_code == ErrorCode.NONE
        wait_until(lambda: open_files(node) < limit // 2, "they are gone")
        with Wire(node) as later:
            assert produce(later, "meanwhile", batch("b")).base_offset == 1
        assert node.running


def test_clients_at_max_connections_do_not_keep_nodes_out(tmp_path: Path) -> None:
    inside, outside = free_ports(2, "127.0.0.1")
    properties = {
        "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "max.connections": "5",
    }
    with start_node(tmp_path, port=inside, properties=properties), flood(("127.0.0.1", outside), 10) as connections:
        wait_until(lambda: sum(map(is_closed, connections)) == 5, "the limit holds for clients")
        with Wire(("127.0.0.1", inside)) as wire:
            create_topic(wire, "t")


def test_a_connection_above_the_rate_of_its_address_is_not_served(tmp_path: Path) -> None:
    with start_node(tmp_path) as node, Admin(node.bootstrap) as admin:
        admin.quotas.alter({"ip": None}, {"connection_creation_rate": 1.0})
        wait_until(lambda: admin.quotas.describe({"ip": None}), "the quota holds")
        answered = refused = 0
        with flood((node.host, node.port), 60) as connections:
            for connection in connections:
                try:
                    connection.sendall(encode_request(ApiVersionsRequest(), 0, 1, "many"))
                    if connection.recv(4):
                        answered += 1
                    else:
                        refused += 1
                except (ConnectionResetError, BrokenPipeError):
                    refused += 1
        assert answered >= 5
        assert refused >= 20


def test_announced_lengths_claim_little_memory(tmp_path: Path) -> None:
    with start_node(tmp_path) as node:
        before = resident_bytes(node)
        with flood((node.host, node.port), 200) as connections:
            for connection in connections:
                connection.sendall(struct.pack(">ihh", 4_000_000, 0, 9))  # the beginning of a Produce request
            with Wire(node) as wire:
                create_topic(wire, "t")
                assert produce(wire, "t", batch("x" * 100_000)).error_code == ErrorCode.NONE
                assert resident_bytes(node) - before < 400_000_000
        wait_until(lambda: open_files(node) < 60, "they are gone")


def test_nobody_fills_the_log(tmp_path: Path) -> None:
    nonsense = (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">ihhi", 8, 999, 0, 1),  # no such API
        struct.pack(">ihhih", 10, 3, 12, 1, 7),  # a client id that is not there
    )
    with start_node(tmp_path) as node:
        for number in range(300):
            with socket.create_connection((node.host, node.port), timeout=20) as connection:
                connection.sendall(nonsense[number % len(nonsense)])
                assert is_refused(connection)
        assert 1 <= node.log_text().count("closing 127.0.0.1") < 50


def is_refused(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def resident_bytes(node: RunningNode) -> int:
    with open(f"/proc/{node.pid}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
