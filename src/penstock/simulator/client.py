"""A client of simulated brokers: one request at a time on one connection, over the loop's simulated network."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.protocol.conversation import Conversation, spec_of
from penstock.protocol.declaration import Message
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.protocol.messages.produce import PartitionProduceResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.record import Record, iterate_records
from penstock.simulator import requests

PRODUCE_VERSION = 12
FETCH_VERSION = 12


class Lost(Exception):
    """The connection ended, or no answer came in time: the result of the request is unknown."""


class Silence(Lost):
    """No answer came in time, and the connection is still open."""


class Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float, client_id: str = "simulated"
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.patience = patience
        self._conversation: Conversation[Message] = Conversation(client_id)

    async def ask(self, message: Message, version: int | None = None) -> Any:
        """Without a handshake: in this version, or in the newest."""
        self._conversation.request(message, message, spec_of(message).max_version if version is None else version)
        self._writer.write(self._conversation.take_outgoing())
        answer = self._conversation.read_frame(await self.receive_frame())
        assert answer is not None
        return answer.response

    async def log_in(self, user: str, password: str) -> None:
        answer = await self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert answer.error_code == ErrorCode.NONE, answer
        token = f"\0{user}\0{password}".encode()
        answer = await self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == ErrorCode.NONE, answer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive_frame(self) -> bytes:
        try:
            async with asyncio.timeout(self.patience):
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                return await self._reader.readexactly(size)
        except TimeoutError as error:
            raise Silence from error
        except (OSError, asyncio.IncompleteReadError) as error:
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
        request = requests.produce_request(topic, data, acks=acks, timeout_ms=timeout_ms)
        return requests.only_partition(await self.ask(request, PRODUCE_VERSION))

    async def fetch(self, topic: str, offset: int, **options: Any) -> Any:
        response = await self.ask(requests.fetch_request(topic, offset, **options), FETCH_VERSION)
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
        """Every record from `offset` to the high watermark of the first answer, at least: others may produce all the
        time. The CRC of each batch and each record is checked."""
        found: list[Record] = []
        end = offset + 1
        while offset < end:
            answer = await self.fetch(topic, offset)
            assert answer.error_code == ErrorCode.NONE, (topic, offset, answer)
            some = records_checked(answer.records)
            if not some:
                assert offset == answer.high_watermark, (topic, offset, answer)
                break
            if not found:
                end = answer.high_watermark
            found += [record for record in some if record.offset >= offset]
            offset = found[-1].offset + 1
        return found


def records_checked(data: Any) -> list[Record]:
    view = memoryview(data)
    found: list[Record] = []
    for position, header in iterate_headers(view):
        check_crc(view, position, header)
        found += iterate_records(view, position, header, max_size=requests.MAX_RECORDS_SIZE)
    return found


@asynccontextmanager
async def connected(
    host: str, port: int, patience: float, client_id: str = "simulated", user: tuple[str, str] | None = None
) -> AsyncIterator[Client]:
    """`user`: the name and password for a login."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise Lost from error
    try:
        client = Client(reader, writer, patience, client_id)
        if user is not None:
            await client.log_in(*user)
        yield client
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
