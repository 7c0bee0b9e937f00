"""`python -m bench.quotas`: what quotas cost a request of a cluster that has none.

As `bench.acls`: a node in this process, and its router called directly with plain produce requests, in turns with a
router that is the same but for the question whether there are quotas. CPU time of this thread; the spread is that of
the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import tempfile
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

from bench.acls import ALICE, HOST, VERSION, Discarding, started, timed
from penstock.broker.apis.broker_router import BrokerRouter
from penstock.broker.net.connection import Connection
from penstock.protocol.frames import encode_request
from penstock.simulator.requests import batch, produce_request

_read_start = struct.Struct(">hhi").unpack_from


class WithoutQuotas(BrokerRouter):
    def handle(self, connection: Connection, view: memoryview, start: int, end: int) -> None:
        frame = view[start:end]
        api_key, version, correlation_id = _read_start(frame)
        if (
            api_key == 1
            and connection.is_of_follower
            and 15 <= version <= 18
            and self._plain_follower_fetch(connection, frame, version, correlation_id)
        ):
            return
        if api_key == 0 and 3 <= version <= 13 and self._plain_produce(connection, frame, version, correlation_id):
            return
        raise AssertionError("the request is not plain")


async def measure(rounds: int, calls: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = await started(directory, asyncio.get_running_loop())
        assert node.broker is not None
        router = node.broker.router
        connection: Any = Discarding(
            principal=ALICE,
            peer_host=HOST,
            produce_target=None,
            produce_targets={},
            is_of_follower=False,
            metered=None,
            listener=SimpleNamespace(plain_requests=0),
        )
        request = produce_request("orders", batch(b"v" * 100), acks=1)
        original = encode_request(request, VERSION, 1, "bench")[4:]
        frame, size = memoryview(bytearray(original)), len(original)

        def call(handle: Any) -> float:
            def once() -> None:
                frame[:] = original  # an append writes the offset into the frame
                handle(router, connection, frame, 0, size)

            return timed(once, calls)

        call(BrokerRouter.handle)
        pairs = [(call(WithoutQuotas.handle), call(BrokerRouter.handle)) for _ in range(rounds)]
        differences = [after - before for before, after in pairs]
        low, _, high = quantiles(differences, n=4)
        without, unset = (median(each) for each in zip(*pairs, strict=True))
        print(f"{rounds} rounds of {calls} calls each, in turns; ns of CPU a call")
        print(
            f"plain produce: without quotas {without:.0f}, with none set {unset:.0f}, "
            f"difference {median(differences):+.0f} (quartiles {low:+.0f} to {high:+.0f})"
        )
        await node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    asyncio.run(measure(options.rounds, options.calls))


if __name__ == "__main__":
    main()
