"""confluent-kafka (librdkafka), the client most Python programs use."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from clients import contract
from clients.cases import BASE_TIMESTAMP_MS, CODECS, as_read, numbered_records
from clients.drivers import DEADLINE_S, Position, Record, Refused
from clients.drivers.confluent import ConfluentKafka, answer
from narrowing import present
from waiting import wait_until

INVALID_TIMESTAMP = 32
INVALID_RECORD = 87
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def client(bootstrap: str) -> ConfluentKafka:
    return ConfluentKafka(bootstrap)


class TestContract(contract.Contract): ...


class TestConsumerOffsets:
    def test_watermarks_and_times_through_a_consumer(
        self, client: ConfluentKafka, new_topic: contract.NewTopic
    ) -> None:
        topic = new_topic()
        client.produce(topic, numbered_records(30))
        client.delete_records(topic, 0, 4)
        with client.consumer() as consumer:
            assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (4, 30)
            times = [TopicPartition(topic, 0, BASE_TIMESTAMP_MS + 17), TopicPartition(topic, 0, BASE_TIMESTAMP_MS + 99)]
            found = [consumer.offsets_for_times([time], timeout=DEADLINE_S)[0].offset for time in times]
            assert found == [17, confluent_kafka.OFFSET_END]

    def test_the_offset_of_the_largest_timestamp(self, client: ConfluentKafka, new_topic: contract.NewTopic) -> None:
        topic = new_topic()
        assert client.offset(topic, 0, OffsetSpec.max_timestamp()) == (-1, -1)
        times = [BASE_TIMESTAMP_MS + time for time in (5, 90, 20, 90, 30)]
        client.produce(topic, [Record(b"k", b"v", (), time, 0) for time in times])
        assert client.offset(topic, 0, OffsetSpec.max_timestamp()) == (1, BASE_TIMESTAMP_MS + 90)

    def test_no_reset_where_none_is_wanted(self, client: ConfluentKafka, new_topic: contract.NewTopic) -> None:
        topic = new_topic()
        with client.consumer(auto_offset_reset="error") as consumer:
            consumer.assign([TopicPartition(topic, 0, 55)])
            message = consumer.poll(DEADLINE_S)
        error = present(present(message).error())
        assert error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


class TestUnknownTopics:
    def test_asking_a_consumer_for_one_does_not_create_it(
        self, client: ConfluentKafka, topic_name: contract.TopicName
    ) -> None:
        topic = topic_name()
        with client.consumer() as consumer:
            (described,) = consumer.list_topics(topic, timeout=DEADLINE_S).topics.values()
        assert described.error.code() == contract.UNKNOWN_TOPIC_OR_PARTITION
        assert topic not in client.topics()

    def test_asking_a_producer_for_one_creates_it(self, client: ConfluentKafka, topic_name: contract.TopicName) -> None:
        topic = topic_name()
        producer = Producer(client.common)
        wait_until(lambda: len(producer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 1)

    def test_a_bad_name_is_not_created(self, client: ConfluentKafka) -> None:
        producer = Producer(client.common)
        (described,) = producer.list_topics("not a name", timeout=DEADLINE_S).topics.values()
        assert described.error.code() == confluent_kafka.KafkaError.TOPIC_EXCEPTION

    def test_describing_one_is_an_error(self, client: ConfluentKafka, topic_name: contract.TopicName) -> None:
        topic = topic_name()
        with pytest.raises(Refused) as refused:
            answer(client.admin.describe_topics(TopicCollection([topic]))[topic])
        assert refused.value.code == contract.UNKNOWN_TOPIC_OR_PARTITION


class TestTopicSettings:
    """Settings of a topic that change what the broker does with a batch."""

    def test_log_append_time(self, client: ConfluentKafka, new_topic: contract.NewTopic) -> None:
        topic = new_topic(message_timestamp_type="LogAppendTime")
        client.produce(topic, numbered_records(3))
        with client.consumer() as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            messages = consumer.consume(3, DEADLINE_S)
        kinds, times = zip(*(message.timestamp() for message in messages), strict=True)
        assert set(kinds) == {confluent_kafka.TIMESTAMP_LOG_APPEND_TIME}
        assert len(set(times)) == 1
        assert times[0] > BASE_TIMESTAMP_MS + HOUR_MS / 2

    @pytest.mark.parametrize("stored", [codec for codec in CODECS if codec != "none"] + ["uncompressed"])
    def test_the_topic_may_choose_the_codec(
        self, client: ConfluentKafka, new_topic: contract.NewTopic, stored: str
    ) -> None:
        topic = new_topic(compression_type=stored)
        records = numbered_records(50)
        positions = client.produce(topic, records, codec="gzip" if stored == "lz4" else "none")
        assert contract.read_all(client, topic, 1, 50) == as_read(records, positions)

    def test_timestamps_too_far_ahead_are_refused(self, client: ConfluentKafka, new_topic: contract.NewTopic) -> None:
        topic = new_topic()
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Record(b"k", b"v", (), BASE_TIMESTAMP_MS + 3 * HOUR_MS, 0)])
        assert refused.value.code == INVALID_TIMESTAMP

    def test_a_compacted_topic_wants_keys(self, client: ConfluentKafka, new_topic: contract.NewTopic) -> None:
        topic = new_topic(cleanup_policy="compact")
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Record(None, b"no key", (), BASE_TIMESTAMP_MS, 0)])
        assert refused.value.code == INVALID_RECORD
        assert client.produce(topic, [Record(b"k", b"v", (), BASE_TIMESTAMP_MS, 0)]) == [Position(0, 0)]

    def test_the_legacy_change_resets_what_it_does_not_name(
        self, client: ConfluentKafka, new_topic: contract.NewTopic
    ) -> None:
        topic = new_topic(retention_ms="1000000", segment_ms="7200000")
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "3600000"})
        with pytest.deprecated_call():
            answer(client.admin.alter_configs([resource])[resource])

        def seen() -> tuple[str | None, str | None]:
            configs = client.topic_configs(topic)
            return configs["retention.ms"], configs["segment.ms"]

        wait_until(lambda: seen() == ("604800000", "3600000"))
