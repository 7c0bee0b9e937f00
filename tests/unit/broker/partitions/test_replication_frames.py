"""The frames of replication by hand have the bytes that the codec would write, and mean what it would read."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.broker.apis.fetch_follower_plain import read_request
from penstock.broker.partitions.follower_fetch import partition_data
from penstock.broker.partitions.follower_sessions import FetchPosition, Found, asked_of
from penstock.broker.partitions.replication_frames import Answer, ReplicaFetch, encode_response, read_response
from penstock.protocol.apis import ApiKey
from penstock.protocol.codec import decode_from, encode
from penstock.protocol.frames import encode_request, read_request_header, response_parts
from penstock.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.protocol.primitives import MalformedMessage

TOPICS = [bytes([number]) * 16 for number in range(1, 200)]


def some_asked(chance: random.Random) -> list[FetchPosition]:
    topics, partitions = chance.choice(((0, 0), (1, 1), (3, 2), (2, 130), (130, 1)))
    return [
        ((topic, index), chance.randrange(9), chance.randrange(1 << 40), chance.randrange(9), index, 1 << 20)
        for topic in chance.sample(TOPICS, topics)
        for index in range(partitions)
    ]


def a_request(**changes: Any) -> FetchRequest:
    fields: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 77,
        "session_epoch": 5,
        "replica_state": ReplicaState(replica_id=3, replica_epoch=1234567890123),
    }
    return FetchRequest(**{**fields, **changes})


@pytest.mark.parametrize("version", range(13, 19))
def test_a_request_by_hand_is_that_of_the_codec(version: int) -> None:
    chance = random.Random(version)
    for _ in range(10):
        asked = some_asked(chance)
        request = a_request() if version >= 15 else a_request(replica_state=None, replica_id=3)
        by_hand = ReplicaFetch(request, asked).encode(version, 99, "broker-3")
        frame = memoryview(by_hand)[4:]
        header, position = read_request_header(frame, 0)
        message, _ = decode_from(FetchRequest, frame, version, position)
        assert list(asked_of(message, by_id=True)) == asked
        assert by_hand == encode_request(message, version, 99, "broker-3")
        assert header.correlation_id == 99
        if version >= 15:
            read = read_request(frame)
            assert read is not None
            assert (read.asked, read.broker_id, read.broker_epoch) == (asked, 3, 1234567890123)
            assert (read.message.session_id, read.message.session_epoch) == (77, 5)


@pytest.mark.parametrize(
    "unusual",
    [
        {"session_epoch": 0},
        {"session_epoch": -1},
        {"forgotten_topics_data": [ForgottenTopic(topic_id=TOPICS[0], partitions=[1])]},
        {"rack_id": "r"},
        {"replica_state": None},
        {"replica_state": ReplicaState(replica_id=-1, replica_epoch=-1)},
    ],
)
def test_an_unusual_request_is_left_to_the_codec(unusual: dict[str, Any]) -> None:
    request = a_request(**unusual)
    frame = memoryview(encode_request(request, 18, 1, "broker-3"))[4:]
    assert read_request(frame) is None


def test_a_request_with_unknown_tags_is_left_to_the_codec() -> None:
    request = a_request()
    request.unknown_tags = {7: b"?"}
    assert read_request(memoryview(encode_request(request, 18, 1, "broker-3"))[4:]) is None


def test_every_request_that_ends_too_early_is_left_to_the_codec() -> None:
    frame = memoryview(ReplicaFetch(a_request(), [((TOPICS[0], 1), 1, 2, 3, 4, 5)]).encode(18, 1, "b"))[4:]
    for size in range(8, len(frame)):
        assert read_request(frame[:size]) is None


def some_found(chance: random.Random) -> dict[bytes, list[tuple[int, Found]]]:
    def found() -> Found:
        return Found(
            chance.randrange(1 << 40), chance.randrange(99), chance.randbytes(chance.choice((0, 1, 200, 9000)))
        )

    return {
        topic: [(index, found()) for index in range(chance.choice((1, 3, 130)))]
        for topic in chance.sample(TOPICS, chance.choice((0, 1, 3)))
    }


@pytest.mark.parametrize("version", range(13, 19))
def test_a_response_by_hand_is_that_of_the_codec(version: int) -> None:
    chance = random.Random(version)
    for _ in range(10):
        found = some_found(chance)
        response = FetchResponse(
            session_id=5,
            responses=[
                FetchableTopicResponse(topic_id=topic, partitions=[partition_data(*each) for each in partitions])
                for topic, partitions in found.items()
            ],
        )
        expected: list[Any] = []
        response_parts(ApiKey.FETCH, version, 42, response, expected)
        frame = b"".join(encode_response(42, 5, found))
        assert frame == b"".join(expected)
        answer = read_response(frame, version, 9)
        assert answer == Answer(
            0, 5, [((topic, index), each) for topic, partitions in found.items() for index, each in partitions]
        )


def test_an_unusual_response_is_read_by_the_codec() -> None:
    good = partition_data(0, Found(5, 0, b"records"))
    diverging = partition_data(1, Found(5, 0, b""))
    diverging.diverging_epoch = EpochEndOffset(epoch=3, end_offset=4)
    for partitions in (
        [good, diverging],
        [PartitionData(partition_index=0, error_code=6, records=b"")],
    ):
        response = FetchResponse(
            session_id=5, responses=[FetchableTopicResponse(topic_id=TOPICS[0], partitions=partitions)]
        )
        answer = read_response(encode(response, 18), 18, 0)
        assert [data for _, data in answer.partitions] == partitions
    assert read_response(encode(FetchResponse(error_code=70), 18), 18, 0) == Answer(70, 0, [])
    with pytest.raises(MalformedMessage):
        read_response(encode(FetchResponse(session_id=5), 18)[:-1], 18, 0)
