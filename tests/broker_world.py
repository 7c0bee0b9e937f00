"""A whole node on virtual time, a disk that forgets and a network that cuts: started, killed, started again.

    async def story(loop):
        world = BrokerWorld(loop, seed)
        await world.start()
        async with world.client() as client:
            await client.create_topic("t")
        world.power_loss()
        await world.start()

Everything is decided by the seed, so a failure is replayed by running its seed again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import wire as w
from penstock.broker.node import Node
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiSpec
from penstock.protocol.codec import decode, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.header import ResponseHeader
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.produce import PartitionProduceResponse
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.record import Record, iterate_records
from penstock.settings.node import NodeSettings
from penstock.testing.simulated_clock import SimulatedClock, SimulatedRandomness
from penstock.testing.simulated_disk import Event, SimulatedDisk
from penstock.testing.simulated_loop import SimulatedLoop
from penstock.testing.simulated_mount import Mount, ProcessKilled
from penstock.testing.simulated_processes import SimulatedProcesses

HOST = "broker"
PORT = 9092
DATA = "/var/penstock"
PRODUCE_VERSION = 12
FETCH_VERSION = 12

_SPECS: dict[type[Any], ApiSpec] = {spec.request: spec for spec in API.values()}


class Lost(Exception):
    """The connection ended, or no answer came in time: nobody knows what became of the request."""


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
        self._reader = reader
        self._writer = writer
        self._patience = patience
        self._correlation_ids = itertools.count(1)

    async def ask(self, message: Message, version: int | None = None) -> Any:
        spec = _SPECS[type(message)]
        version = spec.max_version if version is None else version
        correlation_id = next(self._correlation_ids)
        self._writer.write(encode_request(message, version, correlation_id, "simulated"))
        frame = await self.receive_frame()
        header, position = decode_from(ResponseHeader, frame, response_header_version(spec.key, version), 0)
        assert header.correlation_id == correlation_id
        return decode(spec.response, frame, version, position)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive_frame(self) -> bytes:
        try:
            async with asyncio.timeout(self._patience):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:  # TimeoutError is an OSError
            raise Lost from error

    async def create_topic(self, name: str, configs: dict[str, str] | None = None, partitions: int = 1) -> ErrorCode:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        (result,) = (await self.ask(CreateTopicsRequest(topics=[topic]))).topics
        return ErrorCode(result.error_code)

    async def delete_topic(self, name: str) -> ErrorCode:
        (result,) = (await self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))).responses
        return ErrorCode(result.error_code)

    async def topics(self) -> dict[str, bytes]:
        answer = await self.ask(MetadataRequest(topics=None))
        return {topic.name: topic.topic_id for topic in answer.topics}

    async def producer_id(self) -> int | None:
        answer = await self.ask(InitProducerIdRequest(transactional_id=None))
        return answer.producer_id if answer.error_code == ErrorCode.NONE else None

    async def produce(
        self, topic: str, data: Any, *, acks: int = -1, timeout_ms: int = 10_000
    ) -> PartitionProduceResponse:
        request = w.produce_request(topic, data, acks=acks, timeout_ms=timeout_ms)
        return w.only_partition(await self.ask(request, PRODUCE_VERSION))

    async def fetch(self, topic: str, offset: int, **options: Any) -> Any:
        response = await self.ask(w.fetch_request(topic, offset, **options), FETCH_VERSION)
        ((answer,),) = (each.partitions for each in response.responses)
        return answer

    async def earliest(self, topic: str) -> int:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-2)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        ((answer,),) = (each.partitions for each in (await self.ask(request)).topics)
        assert answer.error_code == ErrorCode.NONE, answer
        offset: int = answer.offset
        return offset

    async def read_all(self, topic: str, offset: int = 0) -> list[Record]:
        """Every record from `offset` on; each batch's CRC and each record is checked on the way."""
        found: list[Record] = []
        while True:
            answer = await self.fetch(topic, offset)
            assert answer.error_code == ErrorCode.NONE, (topic, offset, answer)
            some = records_checked(answer.records)
            if not some:
                assert offset == answer.high_watermark, (topic, offset, answer)
                return found
            found += [record for record in some if record.offset >= offset]
            offset = found[-1].offset + 1


def records_checked(data: Any) -> list[Record]:
    view = memoryview(data)
    found: list[Record] = []
    for position, header in iterate_headers(view):
        check_crc(view, position, header)
        found += iterate_records(view, position, header, max_size=w.MAX_RECORDS_SIZE)
    return found


class DoomedMount(Mount):
    """The files of a process that can be killed at a change of its own, not only between its steps."""

    def __init__(self, disk: SimulatedDisk, on_killed: Callable[[], None]) -> None:
        super().__init__(disk)
        self._on_killed = on_killed
        self._changes_left: int | None = None

    def die_after(self, changes: int) -> None:
        self._changes_left = changes

    def check(self, *, changing: bool = True) -> None:
        super().check(changing=changing)
        if changing and self._changes_left is not None:
            if self._changes_left == 0:
                self.kill()
                self._on_killed()
                raise ProcessKilled
            self._changes_left -= 1


class BrokerWorld:
    def __init__(
        self,
        loop: SimulatedLoop,
        seed: int | str,
        *,
        properties: dict[str, str] | None = None,
        trace: list[Event] | None = None,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.clock = SimulatedClock(elapsed=loop.time)
        self.disk = SimulatedDisk(clock=self.clock, trace=trace)
        self.chance = random.Random(f"{seed}/world")
        self.node: Node | None = None
        self.files: DoomedMount | None = None
        self.starts = 0
        self.failures: list[str] = []
        self._properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{PORT}",
            "log.dirs": DATA,
            **(properties or {}),
        }
        self.killed = asyncio.Event()
        self._program: asyncio.Task[None] | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    async def start(self, *, patience: float = 60.0, die_after: int | None = None) -> bool:
        """Ready on return; what the node says where it refuses to start is raised. False if it was killed meanwhile,
        by its `die_after`-th change of the disk."""
        self.starts += 1
        ready: asyncio.Future[bool] = self.loop.create_future()
        self._stopping = asyncio.Event()
        self.killed.clear()

        def on_killed() -> None:
            self.loop.kill(HOST)
            self.killed.set()
            if not ready.done():
                ready.set_result(False)

        self.files = DoomedMount(self.disk, on_killed)
        if die_after is not None:
            self.files.die_after(die_after)
        self._program = self.loop.start(HOST, self._run(ready, self._stopping, self.files))
        async with asyncio.timeout(patience):
            return await ready

    async def _run(self, ready: asyncio.Future[bool], stopping: asyncio.Event, files: Mount) -> None:
        chance = random.Random(f"{self.seed}/children/{self.starts}")
        node = Node(
            NodeSettings.from_properties(self._properties),
            loop=self.loop,
            files=files,
            clock=self.clock,
            randomness=SimulatedRandomness(f"{self.seed}/node/{self.starts}"),
            processes=SimulatedProcesses(self.disk, chance),
        )
        try:
            await node.start()
        except Exception as error:  # noqa: BLE001 - it is for whoever waits
            ready.set_exception(error)
            return
        self.node = node
        ready.set_result(True)
        stop = asyncio.ensure_future(stopping.wait())
        await asyncio.wait([stop, node.failure], return_when=asyncio.FIRST_COMPLETED)
        if node.failure.done():
            self.failures.append(node.failure.result())
            await node.abandon()
            stop.cancel()
        else:
            await node.stop()

    async def stop(self) -> None:
        """A clean stop."""
        assert self._stopping is not None and self._program is not None
        self._stopping.set()
        await self._program
        self.loop.kill(HOST)
        self.node = None

    def crash(self) -> None:
        """kill -9: what was written is there."""
        self.loop.kill(HOST)
        self.disk.crash()
        self.node = None

    def power_loss(self) -> None:
        """What was not synced is lost, kept or torn."""
        self.loop.power_off(HOST)
        self.disk.power_loss(self.chance)
        self.loop.network.power_on(HOST)
        self.node = None

    @asynccontextmanager
    async def client(self, *, patience: float = 30.0) -> AsyncIterator[Client]:
        try:
            async with asyncio.timeout(patience):
                reader, writer = await asyncio.open_connection(HOST, PORT)
        except OSError as error:
            raise Lost from error
        try:
            yield Client(reader, writer, patience)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def quietly() -> None:
    """Crashes on purpose are no news."""
    for name in ("penstock", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
