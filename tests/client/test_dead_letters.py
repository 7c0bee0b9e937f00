"""Records that cannot be read end up in the dead-letter topic, and are not committed before they are there."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from client_world import NewTopic
from penstock import Consumer, DeadLetter, Int64, Json, Producer, TopicPartition
from penstock.client.errors import RecordTooLarge, UnknownTopic
from penstock.client.librdkafka import dead_letters


@pytest.fixture
def group(unique_topic: Callable[[str], str]) -> str:
    return unique_topic("group")


def test_a_dead_letter_is_the_record_and_its_story(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic, dead = new_topic(), new_topic()
    with Producer(bootstrap) as producer:
        producer.send(topic, b"1", key=bytes(8))
        producer.send(topic, b"{", key=bytes(8), timestamp=77, headers={"own": b"header"})
        producer.send(topic, b"3", key=b"short")
        producer.send(topic, b"4", key=bytes(8))
    letters = DeadLetter(dead)
    with Consumer(bootstrap, topic, group=group, key=Int64(), value=Json(), on_error=letters) as consumer:
        assert [record.value for record in itertools.islice(consumer, 2)] == [1, 4]
        assert consumer.dead_lettered == 2
        consumer.commit()
        assert consumer.committed() == {TopicPartition(topic, 0): 4}
    with Consumer(bootstrap, dead) as consumer:
        one, two = itertools.islice(consumer, 2)
    assert (one.key, one.value, one.timestamp) == (bytes(8), b"{", 77)
    assert one.headers[0] == ("own", b"header")
    assert [one.header(name) for name in (dead_letters.TOPIC, dead_letters.PARTITION, dead_letters.OFFSET)] == [
        topic.encode(),
        b"0",
        b"1",
    ]
    assert b"Expecting property name" in (one.header(dead_letters.REASON) or b"")
    assert (two.key, two.value, two.header(dead_letters.OFFSET)) == (b"short", b"3", b"2")
    assert two.header(dead_letters.REASON) == b"an integer of 64 bits has 8 bytes, not 5"


def test_nothing_is_committed_behind_a_letter_that_is_lost(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    """The dead-letter topic takes small records only: the large bad one stays where it is, whatever is tried."""
    topic, dead = new_topic(), new_topic(max_message_bytes="500")
    bad = bytes(range(256)) * 10
    with Producer(bootstrap) as producer:
        for value in (b"1", bad, b"3"):
            producer.send(topic, value)
    consumer = Consumer(bootstrap, topic, group=group, value=Json(), on_error=DeadLetter(dead))
    values: list[int] = []
    while len(values) < 2:
        values += consumer.batch(10, 60).values()
    assert values == [1, 3]
    for _ in range(2):
        with pytest.raises(RecordTooLarge) as caught:
            consumer.commit()
        assert dead in caught.value.__notes__[0]
    with pytest.raises(RecordTooLarge):
        consumer.batch(10, 0)
    with pytest.raises(RecordTooLarge):
        consumer.close()
    with Consumer(bootstrap, topic, group=group) as again:
        assert again.batch(1, 60).values() == [b"1"]


def test_a_dead_letter_topic_that_does_not_exist(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        producer.send(topic, b"{")
    with Producer(bootstrap, max_block=2) as own:
        letters = DeadLetter("no-such-topic", own)
        consumer = Consumer(bootstrap, topic, value=Json(), on_error=letters)
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            consumer.batch(1, 60)
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            consumer.close()
