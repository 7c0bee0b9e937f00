"""The schema registry: GET by id beside a bare Starlette answer, registrations with few and many schemas, the start.

    python -m bench.registry [--schemas 10000] [--seconds 3]

A broker and the servers run as processes. Both servers are uvicorn on uvloop; the bare one answers every path with the
same bytes through a Starlette route. Rounds alternate, so that other load on the machine hits both; the ratio is what
counts. Schemas are written into the topic directly, in the format of the registry.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from penstock.local.ports import free_ports
from penstock.local.web import LocalRegistry
from penstock.registry.core.state import SchemaVersion
from penstock.registry.kafka.topic import ensure_topic
from penstock.registry.kafka.writer import TopicWriter
from penstock.testing.nodes import start_node

ROUNDS = 5
REGISTRATIONS = 100
BATCH = 500
FEW = 10

BARE = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

body = sys.argv[2].encode()

async def answer(request):
    return Response(body, media_type="application/vnd.schemaregistry.v1+json")

app = Starlette(routes=[Route("/schemas/ids/{id}", answer)])
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", log_config=None, access_log=False, server_header=False)
"""


def schema(number: int) -> str:
    fields = [{"name": f"field_{each}", "type": ["null", "long"], "default": None} for each in range(8)]
    return json.dumps({"type": "record", "name": f"Record{number}", "fields": fields}, separators=(",", ":"))


def fill(bootstrap: str, topic: str, count: int) -> None:
    ensure_topic(bootstrap, topic, timeout=30.0)
    with TopicWriter(bootstrap, topic, f"fill-{topic}", timeout=30.0) as writer:
        for first in range(1, count + 1, BATCH):
            numbers = range(first, min(first + BATCH, count + 1))
            writer.append([SchemaVersion(f"s{each}", 1, each, "AVRO", schema(each)).record() for each in numbers])


@contextlib.contextmanager
def registry(directory: str, bootstrap: str, topic: str) -> Iterator[tuple[LocalRegistry, float]]:
    """A running node, and the seconds from its start to its first answer."""
    (port,) = free_ports(1, "127.0.0.1")
    arguments = ["--topic", topic, "--group", f"group-{topic}"]
    node = LocalRegistry(f"{directory}/{topic}", bootstrap=bootstrap, host="127.0.0.1", port=port, arguments=arguments)
    began = time.perf_counter()
    node.start()
    try:
        node.wait_ready(60.0)
        yield node, time.perf_counter() - began
    finally:
        node.stop()


@contextlib.contextmanager
def bare(body: str) -> Iterator[int]:
    (port,) = free_ports(1, "127.0.0.1")
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port), body])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def gets_a_second(port: int, seconds: float, ids: int) -> float:
    """One connection, one request at a time, requests built beforehand."""
    requests = [f"GET /schemas/ids/{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for number in range(1, ids + 1)]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        done = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            connection.sendall(requests[done % ids])
            _read_answer(connection)
            done += 1
        return done / (time.perf_counter() - began)


def _read_answer(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode())
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    missing = length - len(body)
    while missing > 0:
        missing -= len(connection.recv(65536))


def registrations_a_second(node: LocalRegistry, tag: int) -> float:
    connection = http.client.HTTPConnection(node.host, node.port)
    headers = {"content-type": "application/json"}

    def register(number: int) -> None:
        body = json.dumps({"schema": schema(number)})
        connection.request("POST", f"/subjects/new{number}/versions", body=body, headers=headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise RuntimeError(answer.read().decode())
        answer.read()

    first = 1_000_000 * (tag + 1)
    register(first)  # a writer is elected
    began = time.perf_counter()
    for number in range(first + 1, first + 1 + REGISTRATIONS):
        register(number)
    rate = REGISTRATIONS / (time.perf_counter() - began)
    connection.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    properties = {"group.initial.rebalance.delay.ms": "0"}
    with tempfile.TemporaryDirectory() as directory, start_node(f"{directory}/broker", properties=properties) as broker:
        fill(broker.bootstrap, "many", options.schemas)
        fill(broker.bootstrap, "few", FEW)
        with (
            registry(directory, broker.bootstrap, "many") as (many, many_s),
            registry(directory, broker.bootstrap, "few") as (few, few_s),
            bare(json.dumps({"schemaType": "AVRO", "schema": schema(1), "guid": "0" * 36})) as bare_port,
        ):
            print(f"start to first answer: {few_s:.2f} s with {FEW} schemas, {many_s:.2f} s with {options.schemas}")
            rounds = [
                (
                    gets_a_second(many.port, options.seconds, options.schemas),
                    gets_a_second(bare_port, options.seconds, 1),
                )
                for _ in range(ROUNDS)
            ]
            ours, theirs = (statistics.median(rates) for rates in zip(*rounds, strict=True))
            ratio = statistics.median(one / other for one, other in rounds)
            print(f"GET by id: {ours:.0f} a second, bare Starlette {theirs:.0f}, ratio {ratio:.2f}")
            writes = [
                (registrations_a_second(many, number), registrations_a_second(few, number)) for number in range(ROUNDS)
            ]
            ours, theirs = (statistics.median(rates) for rates in zip(*writes, strict=True))
            ratio = statistics.median(one / other for one, other in writes)
            print(
                f"registrations: {ours:.0f} a second with {options.schemas} schemas, {theirs:.0f} with {FEW}, "
                f"ratio {ratio:.2f}"
            )


if __name__ == "__main__":
    main()
