"""The plain Produce and Fetch are answered by hand-written code, everything else by the general one: both must say the
same. A tag that means nothing in the request's header makes any request one for the general way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire import Wire, batch, changed, create_topic, only_partition, produce, produce_request, producer_id, read_all

UNKNOWN_TAG = b"\x01\x63\x00"


def answers(wire: Wire, message: Message, version: int) -> tuple[bytes, bytes]:
    """What the plain and the general way answer, without length and correlation id."""
    frames = []
    for tagged in (False, True):
        frame = wire.encode(message, version, answered=False)
        if tagged:
            client_id_end = 14 + int.from_bytes(frame[12:14], "big")
            assert frame[client_id_end] == 0
            frame = frame[:client_id_end] + UNKNOWN_TAG + frame[client_id_end + 1 :]
            frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
        wire.socket.sendall(frame)
        frames.append(wire.receive_frame()[4:])
    return frames[0], frames[1]


@pytest.fixture
def topics(wire: Wire, unique_topic: Callable[[str], str]) -> dict[str, bytes]:
    """Two topics of two partitions, with some batches in three of the four; names and ids."""
    names = [unique_topic("plain"), unique_topic("plain")]
    ids = {}
    for name in names:
        ids[name] = create_topic(wire, name, partitions=2)
        for number in range(5):
            produce(wire, name, batch(*(f"{number}-{index}" for index in range(number + 1))), partition=0)
    produce(wire, names[0], batch("x" * 20_000), partition=1)
    return ids


def fetch(
    topics: dict[str, bytes],
    version: int,
    offsets: tuple[int, ...],
    *,
    partition_max_bytes: int = 1 << 20,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    leader_epoch: int = -1,
) -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=name if version < 13 else "",
                topic_id=topic_id if version >= 13 else bytes(16),
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        current_leader_epoch=leader_epoch,
                        partition_max_bytes=partition_max_bytes,
                    )
                    for index, offset in enumerate(offsets)
                ],
            )
            for name, topic_id in topics.items()
        ],
    )


@pytest.mark.parametrize("version", range(12, 19))
def test_a_fetch_is_answered_alike_both_ways(wire: Wire, topics: dict[str, bytes], version: int) -> None:
    for request in (
        fetch(topics, version, (0,)),
        fetch(topics, version, (0, 0)),
        fetch(topics, version, (3, 0), isolation_level=1),
        fetch(topics, version, (14, 1)),
        fetch(topics, version, (15, 0), max_bytes=100),
        fetch(topics, version, (0, 0), partition_max_bytes=150),
        fetch(topics, version, (0, 0), partition_max_bytes=1, max_bytes=1),
        fetch(topics, version, (0, 0), leader_epoch=0),
        fetch(topics, version, (0, 0), leader_epoch=7),
        fetch(topics, version, (99, 0)),
        fetch(topics, version, (0, 0, 0)),
        fetch({"no-such-topic": b"\x01" * 16, **topics}, version, (0,)),
    ):
        plain, general = answers(wire, request, version)
        assert plain == general, request


def test_a_fetch_that_names_a_topic_twice_is_answered_alike_both_ways(wire: Wire, topics: dict[str, bytes]) -> None:
    request = fetch(topics, 12, (0, 0))
    request.topics.append(request.topics[0])
    plain, general = answers(wire, request, 12)
    assert plain == general


@pytest.mark.parametrize("version", range(9, 14))
def test_a_produce_is_answered_alike_both_ways(wire: Wire, topics: dict[str, bytes], version: int) -> None:
    name, topic_id = next(iter(topics.items()))
    for acks in (1, -1):
        for index in (1, 0, 0, 7):
            request = ProduceRequest(
                acks=acks,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(
                        name=name if version < 13 else "",
                        topic_id=topic_id if version >= 13 else bytes(16),
                        partition_data=[PartitionProduceData(index=index, records=batch("a", "b"))],
                    )
                ],
            )
            plain, general = answers(wire, request, version)
            # The second one is appended after the first: everything but the base offset must be the same.
            assert len(plain) == len(general)
            differing = [at for at, (one, other) in enumerate(zip(plain, general, strict=True)) if one != other]
            assert len(differing) <= 2, request


@pytest.mark.parametrize("version", range(3, 13))
def test_a_connection_that_goes_on_producing_is_answered_in_every_version(
    wire: Wire, unique_topic: Callable[[str], str], version: int
) -> None:
    """A connection remembers what its requests begin with; a topic that was deleted and made anew is another one."""
    name = unique_topic("plain")
    for _ in range(2):
        create_topic(wire, name, partitions=2)
        for offset in range(3):
            for partition in (0, 1, 1):
                answer = produce(wire, name, batch("v" * 200 * offset), partition=partition, version=version)
                assert answer.error_code == 0
            assert answer.base_offset == 2 * offset + 1
        wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000))


@pytest.mark.parametrize("version", range(3, 13))
def test_requests_that_arrive_together_are_answered_as_if_alone(
    wire: Wire, unique_topic: Callable[[str], str], version: int
) -> None:
    """Plain ones are appended together; what is not plain in between has its own answer, in its own place."""
    name = unique_topic("together")
    create_topic(wire, name, partitions=2)
    producer = producer_id(wire)
    good = batch("x")
    requests = [
        *[produce_request(name, batch("a" * number, "b"), acks=1) for number in range(20)],
        produce_request(name, changed(batch("bad"), count=7), acks=1),
        *[produce_request(name, batch("c"), acks=1) for _ in range(3)],
        produce_request(name, batch("other partition"), partition=1, acks=1),
        produce_request(name, batch("other partition"), partition=1),
        produce_request(name, batch("d"), acks=1),
        produce_request(name, batch("e"), partition=9, acks=1),
        *[produce_request(name, batch("s", producer_id=producer, producer_epoch=0, base_sequence=n)) for n in range(3)],
        produce_request(name, bytearray(good[:-1]) + b"?", acks=1),
        *[produce_request(name, batch("f" * 3000), acks=1) for _ in range(70)],
    ]
    wire.socket.sendall(b"".join(wire.encode(request, version) for request in requests))
    answers = [only_partition(wire.receive()) for _ in requests]
    errors = [answer.error_code for answer in answers]
    assert [index for index, code in enumerate(errors) if code] == [20, 27, 31]
    assert errors[27] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors[31] == ErrorCode.CORRUPT_MESSAGE
    assert [answer.base_offset for answer in answers[:20]] == [2 * number for number in range(20)]
    assert [answer.base_offset for answer in answers[21:27]] == [40, 41, 42, 0, 1, 43]
    assert [answer.base_offset for answer in answers[28:31]] == [44, 45, 46]
    assert [answer.base_offset for answer in answers[32:]] == [47 + number for number in range(70)]
    expected = [value for number in range(20) for value in (b"a" * number, b"b")]
    expected += [b"c"] * 3 + [b"d"] + [b"s"] * 3 + [b"f" * 3000] * 70
    assert [record.value for record in read_all(wire, name)] == expected
