"""Incremental fetch sessions (KIP-227), as a client sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from penstock.testing.nodes import RunningNode
from wire import Wire, batch, create_topic, produce, values

Names = Callable[[str], str]

BY_NAME = 12
BY_ID = 18


class Session:
    """A client's half of a session: it names partitions once, then only what changed."""

    def __init__(self, wire: Wire, version: int = BY_NAME) -> None:
        self.wire = wire
        self.version = version
        self.id = 0
        self.epoch = 0

    def request(
        self, *partitions: tuple[Any, int, int], forget: Any = (), max_wait_ms: int = 0, min_bytes: int = 0
    ) -> FetchRequest:
        """`partitions`: topic (name or id), index, offset. `forget`: topic, index."""
        key = "topic_id" if self.version >= 13 else "topic"
        return FetchRequest(
            session_id=self.id,
            session_epoch=self.epoch,
            max_bytes=1 << 20,
            topics=[
                FetchTopic(
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20),
                    ],
                    **{key: topic},
                )
                for topic, index, offset in partitions
            ],
            forgotten_topics_data=[ForgottenTopic(partitions=[index], **{key: topic}) for topic, index in forget],
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
        )

    def fetch(self, *partitions: tuple[Any, int, int], **options: Any) -> dict[tuple[Any, int], Any]:
        """What the answer names."""
        response = self.wire.ask(self.request(*partitions, **options), self.version)
        assert response.error_code == ErrorCode.NONE
        self.id = response.session_id
        self.epoch = 1 if self.epoch == 2**31 - 1 else self.epoch + 1
        return {
            (topic.topic_id if self.version >= 13 else topic.topic, data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }

    def error(self, *partitions: tuple[Any, int, int], **options: Any) -> ErrorCode:
        response = self.wire.ask(self.request(*partitions, **options), self.version)
        assert not response.responses
        return ErrorCode(response.error_code)


@pytest.fixture
def topic(wire: Wire, unique_topic: Names) -> str:
    name = unique_topic("session")
    create_topic(wire, name, partitions=2)
    return name


def test_only_news_is_told(wire: Wire, topic: str) -> None:
    session = Session(wire)
    assert set(session.fetch((topic, 0, 0), (topic, 1, 0))) == {(topic, 0), (topic, 1)}
    assert session.id > 0
    assert session.fetch() == {}
    produce(wire, topic, batch("a"), partition=1)
    news = session.fetch()
    assert set(news) == {(topic, 1)}
    assert values(news[topic, 1].records) == [b"a"]
    # The client has moved on; what it does not mention stays as it was.
    assert session.fetch((topic, 1, 1)) == {}
    produce(wire, topic, batch("b"), partition=0)
    assert set(session.fetch()) == {(topic, 0)}


def test_what_was_not_consumed_is_told_again(wire: Wire, topic: str) -> None:
    session = Session(wire)
    produce(wire, topic, batch("a"))
    for _ in range(3):
        assert values(session.fetch((topic, 0, 0))[topic, 0].records) == [b"a"]


def test_partitions_join_and_leave(wire: Wire, topic: str) -> None:
    session = Session(wire)
    session.fetch((topic, 0, 0))
    assert set(session.fetch((topic, 1, 0))) == {(topic, 1)}
    session.fetch(forget=[(topic, 0)])
    produce(wire, topic, batch("a"), partition=0)
    assert session.fetch() == {}
    produce(wire, topic, batch("b"), partition=1)
    assert set(session.fetch()) == {(topic, 1)}


def test_a_session_that_forgets_everything_is_gone(wire: Wire, topic: str) -> None:
    session = Session(wire)
    session.fetch((topic, 0, 0))
    session_id = session.id
    session.fetch(forget=[(topic, 0)])
    assert session.id == 0
    session.id = session_id
    assert session.error() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_told_until_it_is_gone(wire: Wire, topic: str) -> None:
    session = Session(wire)
    assert session.fetch((topic, 0, 5))[topic, 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert session.fetch()[topic, 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert session.fetch((topic, 0, 0))[topic, 0].error_code == ErrorCode.NONE
    assert session.fetch() == {}


def test_a_wrong_epoch_is_refused_and_the_right_one_still_works(wire: Wire, topic: str) -> None:
    session = Session(wire)
    session.fetch((topic, 0, 0))
    session.epoch = 2
    assert session.error() is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = 1
    assert session.fetch() == {}
    session.epoch = 1
    assert session.error() is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_refused(wire: Wire, topic: str) -> None:
    session = Session(wire)
    session.id, session.epoch = 12345, 1
    assert session.error((topic, 0, 0)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_closes_and_still_answers(wire: Wire, topic: str) -> None:
    session = Session(wire)
    session.fetch((topic, 0, 0))
    session_id, session.epoch = session.id, -1
    assert set(session.fetch((topic, 0, 0))) == {(topic, 0)}
    assert session.id == 0
    session.id, session.epoch = session_id, 2
    assert session.error() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_zero_with_an_id_replaces_the_session(wire: Wire, topic: str) -> None:
    session = Session(wire)
    session.fetch((topic, 0, 0))
    old, session.epoch = session.id, 0
    session.fetch((topic, 0, 0))
    assert session.id not in (0, old)
    session.id, session.epoch = old, 1
    assert session.error() is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_without_partitions_opens_none(wire: Wire) -> None:
    session = Session(wire)
    assert session.fetch() == {}
    assert session.id == 0


@pytest.mark.parametrize(("opened", "asked"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_names_and_ids_do_not_mix(wire: Wire, unique_topic: Names, opened: int, asked: int) -> None:
    name = unique_topic("mixed")
    topic_id = create_topic(wire, name)
    session = Session(wire, opened)
    session.fetch((topic_id if opened == BY_ID else name, 0, 0))
    session.version = asked
    assert session.error() is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_versions_below_7_have_no_sessions(wire: Wire, topic: str) -> None:
    session = Session(wire, 6)
    request = session.request((topic, 0, 0))
    request.session_epoch = -1
    assert wire.ask(request, 6).session_id == 0


def test_a_topic_made_anew_is_another_topic(wire: Wire, unique_topic: Names) -> None:
    name = unique_topic("recreated")
    old_id = create_topic(wire, name)
    produce(wire, name, batch("old"))
    by_id, by_name = Session(wire, BY_ID), Session(wire, BY_NAME)
    assert values(by_id.fetch((old_id, 0, 0))[old_id, 0].records) == [b"old"]
    by_name.fetch((name, 0, 0))
    wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
    assert by_id.fetch()[old_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    new_id = create_topic(wire, name)
    assert new_id != old_id
    # A session has seen the name under another id; a full fetch knows the old id from nowhere.
    assert by_id.fetch()[old_id, 0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    fresh = Session(wire, BY_ID)
    assert fresh.fetch((old_id, 0, 0))[old_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert by_name.fetch()[name, 0].error_code == ErrorCode.NONE
    produce(wire, name, batch("new"))
    assert values(by_name.fetch((name, 0, 0))[name, 0].records) == [b"new"]


def test_a_waiting_session_is_answered_with_the_news_alone(broker: RunningNode, wire: Wire, topic: str) -> None:
    with Wire(broker) as consumer:
        session = Session(consumer)
        session.fetch((topic, 0, 0), (topic, 1, 0))
        consumer.send(session.request(max_wait_ms=60_000, min_bytes=1), session.version)
        produce(wire, topic, batch("a"), partition=1)
        (only,) = consumer.receive().responses
        (data,) = only.partitions
        assert (data.partition_index, values(data.records)) == (1, [b"a"])


def test_a_full_partition_does_not_starve_the_others(wire: Wire, topic: str) -> None:
    """What was just served goes to the end of the line."""
    for partition in (0, 1):
        for _ in range(2):
            produce(wire, topic, batch("x" * 1000), partition=partition)
    session = Session(wire)
    size = len(batch("x" * 1000))
    served = []
    request = session.request((topic, 0, 0), (topic, 1, 0))
    for _ in range(2):
        request.max_bytes = size
        response = wire.ask(request, BY_NAME)
        served += [data.partition_index for each in response.responses for data in each.partitions if data.records]
        session.id, session.epoch = response.session_id, session.epoch + 1
        request = session.request()
    assert served == [0, 1]
