"""`python -m bench.acls`: what ACLs cost on the way of a request.

A node in this process, and its handlers called directly: one set decides by thousands of ACLs, the other allows
everything. They are called in turns, and the CPU time of this thread is what counts, so that the machine's other work
disturbs the comparison little. The spread is that of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

from penstock.broker.apis.fetch_plain import PlainFetch
from penstock.broker.apis.produce_plain import PlainProduce
from penstock.broker.node import Node
from penstock.io.clock import RealClock, RealRandomness
from penstock.io.environment import Environment
from penstock.io.files import RealFileSystem
from penstock.io.neighbours import NoNeighbours
from penstock.io.processes import RealProcesses
from penstock.local.ports import free_ports
from penstock.protocol.frames import encode_request
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.acls import Acl, PatternType, Permission
from penstock.security.authorizer import AllowAll, Authorizer, Operation, topic_resource
from penstock.security.principal import Principal
from penstock.settings.live import LiveSettings
from penstock.settings.node import NodeSettings
from penstock.simulator.requests import batch, fetch_request, produce_request

ALICE = Principal("User", "alice")
HOST = "10.1.2.3"
VERSION = 12


class Discarding(SimpleNamespace):
    """As much of a connection as the fast paths see; answers are dropped."""

    def answer_plainly(self, reply: bytes, requests: int = 1) -> None:
        pass

    def send(self, parts: list[Any]) -> None:
        pass


def authorizer(acls: int) -> AclAuthorizer:
    made = AclAuthorizer()
    others = [
        Acl(2, f"topic-{number}", PatternType.LITERAL, f"User:{number}", "*", Operation.WRITE, Permission.ALLOW)
        for number in range(acls)
    ]
    prefixes = [
        Acl(2, "x" * length, PatternType.PREFIXED, "User:*", "10.0.0.0/8", Operation.READ, Permission.DENY)
        for length in range(1, 20)
    ]
    own = [
        Acl(2, "orders", PatternType.LITERAL, str(ALICE), "10.0.0.0/8", operation, Permission.ALLOW)
        for operation in (Operation.READ, Operation.WRITE)
    ]
    made.load([*others, *prefixes, *own])
    return made


def timed(call: Callable[[], object], calls: int) -> float:
    """Nanoseconds of CPU a call."""
    turns = range(calls)
    begin = time.thread_time_ns()
    for _ in turns:
        call()
    return (time.thread_time_ns() - begin) / calls


async def started(directory: str, loop: asyncio.AbstractEventLoop) -> Node:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}",
        "log.dirs": directory,
    }
    environment = Environment(
        loop=loop,
        files=RealFileSystem(),
        clock=RealClock(),
        randomness=RealRandomness(),
        processes=RealProcesses(),
        neighbours=NoNeighbours(),
    )
    node = Node(NodeSettings.from_properties(properties), environment)
    await node.start()
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    await node.quorum.call(lambda controller: controller.create_topics(CreateTopicsRequest(topics=[topic])))
    assert node.broker is not None
    while (replica := node.broker.replicas.get("orders", 0)) is None or not replica.appends_plainly:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return node


def handlers(node: Node, decides: Authorizer) -> dict[str, Callable[[], object]]:
    assert node.broker is not None
    replicas = node.broker.replicas
    connection: Any = Discarding(
        principal=ALICE,
        peer_host=HOST,
        produce_target=None,
        produce_targets={},
        listener=SimpleNamespace(plain_requests=0),
    )
    request = bytearray(encode_request(produce_request("orders", batch(b"v" * 100), acks=1), VERSION, 1, "bench")[4:])
    produce = PlainProduce(node.broker.for_produce, decides)
    frame = memoryview(request)
    fetch_frame = memoryview(bytearray(encode_request(asked_fetch(), VERSION, 1, "bench")[4:]))
    fetch = PlainFetch(replicas, LiveSettings(node.settings.static), decides)
    resource = topic_resource("orders")

    original = bytes(request)

    def handle_produce() -> None:
        frame[:] = original  # an append writes the offset into the frame
        assert produce.handle(connection, frame, VERSION, 1)

    def handle_fetch() -> None:
        assert fetch.handle(connection, fetch_frame, VERSION, 1)

    def decide() -> None:
        assert decides.authorize(ALICE, HOST, Operation.WRITE, resource)

    # Fetches first, while the records are in the page cache.
    return {"plain fetch": handle_fetch, "one decision": decide, "plain produce": handle_produce}


def asked_fetch() -> Any:
    return fetch_request("orders", 0, partition_max_bytes=400, session_epoch=-1, max_wait_ms=0, min_bytes=1)


async def measure(rounds: int, calls: int, acls: int) -> None:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as directory:
        node = await started(directory, loop)
        plain, secured = handlers(node, AllowAll()), handlers(node, authorizer(acls))
        print(f"{rounds} rounds of {calls} calls each, in turns; {acls} ACLs; ns of CPU a call")
        timed(plain["plain produce"], 10)
        for name in plain:
            pairs = [(timed(plain[name], calls), timed(secured[name], calls)) for _ in range(rounds + 1)][1:]
            differences = [after - before for before, after in pairs]
            low, _, high = quantiles(differences, n=4)
            without, with_acls = (median(each) for each in zip(*pairs, strict=True))
            print(
                f"{name}: without {without:.0f}, with {with_acls:.0f}, "
                f"difference {median(differences):+.0f} (quartiles {low:+.0f} to {high:+.0f})"
            )
        await node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--acls", type=int, default=10_000)
    options = parser.parse_args()
    asyncio.run(measure(options.rounds, options.calls, options.acls))


if __name__ == "__main__":
    main()
