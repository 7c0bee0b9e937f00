"""A connection of the broker without a network: its client hands it bytes, in pieces of any size."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from penstock.broker.net.connection import Connection
from penstock.simulator.stories.broker_world import BrokerWorld
from penstock.simulator.twins.loop import SimulatedLoop


class Pipe(asyncio.Transport):
    """A transport that keeps what is written, and says who asked to be left alone."""

    def __init__(self, loop: SimulatedLoop, protocol: Connection) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 2)})
        self._loop = loop
        self._protocol = protocol
        self.written = bytearray()
        self.is_ended = False
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is room for everything."""

    def write(self, data: Any) -> None:
        if not self.is_ended:
            self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_ended

    def close(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close


class Peer:
    """A client's end of a connection that is joined to the broker by hand."""

    def __init__(self, world: BrokerWorld) -> None:
        assert world.node is not None
        self.connection = Connection(world.node.listeners.of_brokers[0])
        self.pipe = Pipe(world.loop, self.connection)
        self.connection.connection_made(self.pipe)

    async def send(self, data: bytes, cuts: random.Random) -> None:
        position = 0
        while position < len(data) and not self.pipe.is_ended:
            if self.pipe.is_paused:
                await asyncio.sleep(0.001)
                continue
            size = cuts.choice((1, 7, 300, 5000, 1 << 20, 1 << 20, 1 << 20))
            buffer = memoryview(self.connection.get_buffer(-1))
            taken = data[position : position + min(size, len(buffer))]
            buffer[: len(taken)] = taken
            self.connection.buffer_updated(len(taken))
            position += len(taken)
        await asyncio.sleep(cuts.choice((0, 0.01, 1.0)))
