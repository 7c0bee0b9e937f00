"""What every client must see of the broker. Each client's test file inherits the classes its library has the verbs for.

The tests know nothing of the client: a fixture `client` gives them a driver (see `drivers`).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from clients.cases import (
    BASE_TIMESTAMP_MS,
    CODECS,
    as_read,
    awkward_records,
    by_position,
    default_partition,
    numbered_records,
)
from clients.drivers import Client, Header, Position, Record, Refused
from waiting import wait_until

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40

PATIENCE_S = 5
"""Long enough for a busy machine, short against what a forgotten fetch would take."""

NewTopic = Callable[..., str]
TopicName = Callable[[], str]


def read_all(client: Client, topic: str, partitions: int, count: int) -> list[Record]:
    with client.reader(topic, dict.fromkeys(range(partitions), 0)) as reader:
        return by_position(reader.take(count))


class Producing:
    @pytest.mark.parametrize("codec", CODECS)
    def test_reads_back_exactly_what_was_sent_with_every_codec(
        self, client: Client, new_topic: NewTopic, codec: str
    ) -> None:
        topic = new_topic(partitions=3)
        records = awkward_records(client, partitions=(0, 2))
        positions = client.produce(topic, records, codec=codec)
        half = len(records) // 2
        assert positions == [Position(partition, offset) for partition in (0, 2) for offset in range(half)]
        assert read_all(client, topic, 3, len(records)) == as_read(records, positions)

    @pytest.mark.parametrize("acks", [0, 1, -1])
    def test_every_acks_setting_stores_the_records(self, client: Client, new_topic: NewTopic, acks: int) -> None:
        topic = new_topic()
        records = numbered_records(20)
        positions = client.produce(topic, records, acks=acks)
        in_order = [Position(0, offset) for offset in range(20)]
        if acks:
            assert positions == in_order
        assert read_all(client, topic, 1, 20) == as_read(records, in_order)

    def test_a_large_message_fits(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic()
        noise = random.Random(7).randbytes(900_000)
        records = [
            Record(b"before", b"small", (), BASE_TIMESTAMP_MS, 0),
            Record(b"large", noise, (Header("size", b"900000"),), BASE_TIMESTAMP_MS, 0),
            Record(b"after", b"small", (), BASE_TIMESTAMP_MS, 0),
        ]
        positions = client.produce(topic, records)
        assert read_all(client, topic, 1, 3) == as_read(records, positions)

    def test_a_message_above_the_limit_of_the_topic_is_refused(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic(max_message_bytes="2000")
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Record(b"k", b"x" * 2_500, (), BASE_TIMESTAMP_MS, 0)])
        assert refused.value.code == MESSAGE_TOO_LARGE
        assert client.produce(topic, [Record(b"k", b"fits", (), BASE_TIMESTAMP_MS, 0)]) == [Position(0, 0)]

    def test_keys_choose_the_partition_as_kafka_does(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic(partitions=7)
        keys = [b"user-%d" % n for n in range(60)] + [b"", b"a", b"ab", b"abc", bytes(range(200, 256))]
        positions = client.produce(topic, [Record(key, b"v") for key in keys])
        assert [position.partition for position in positions] == [default_partition(key, 7) for key in keys]


class Compression:
    @pytest.mark.parametrize("codec", CODECS)
    def test_the_codec_of_the_producer_is_that_of_the_log(
        self, client: Client, new_topic: NewTopic, stored_bytes: Callable[[str], int], codec: str
    ) -> None:
        topic = new_topic()
        client.produce(topic, [Record(b"k", b"abcdefgh" * 5_000, (), BASE_TIMESTAMP_MS, 0)], codec=codec)
        assert (stored_bytes(topic) < 10_000) == (codec != "none")


class Pipelining:
    @pytest.mark.parametrize(("idempotent", "codec"), [(False, "none"), (True, "none"), (True, "lz4")])
    def test_thousands_of_records_in_small_batches_stay_in_order(
        self, client: Client, new_topic: NewTopic, idempotent: bool, codec: str
    ) -> None:
        topic = new_topic(partitions=2)
        records = numbered_records(3_000, partitions=2)
        positions = client.produce(topic, records, idempotent=idempotent, codec=codec, batch_bytes=1_000)
        assert positions == [Position(n % 2, n // 2) for n in range(3_000)]
        assert read_all(client, topic, 2, 3_000) == as_read(records, positions)


class Reading:
    def test_reads_on_from_an_offset_within_a_batch(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic()
        client.produce(topic, numbered_records(50), codec="gzip")
        with client.reader(topic, {0: 37}) as reader:
            assert [record.offset for record in reader.take(13)] == list(range(37, 50))

    def test_an_append_wakes_a_waiting_reader(self, client: Client, new_topic: NewTopic) -> None:
        """The fetch waits far longer than this test: only the append can end it."""
        topic = new_topic()
        with client.reader(topic, {0: 0}, wait_ms=4 * PATIENCE_S * 1000) as reader:
            assert reader.take(1, timeout_s=0.3) == []
            for offset in range(3):
                sent = Record(b"late", b"%d" % offset, (), BASE_TIMESTAMP_MS, 0)
                positions = client.produce(topic, [sent])
                assert reader.take(1, timeout_s=PATIENCE_S) == as_read([sent], positions)

    def test_records_arrive_later_in_several_partitions(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic(partitions=4)
        with client.reader(topic, dict.fromkeys(range(4), 0)) as reader:
            for partition in (3, 0, 2):
                sent = Record(b"late", b"%d" % partition, (), BASE_TIMESTAMP_MS, partition)
                positions = client.produce(topic, [sent])
                assert reader.take(1) == as_read([sent], positions)

    def test_reads_more_partitions_than_fit_into_one_answer(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic(partitions=6)
        noise = random.Random(3).randbytes(300_000)
        records = [
            Record(b"%d" % n, noise[n:], (), BASE_TIMESTAMP_MS + n, partition)
            for n in range(4)
            for partition in range(6)
        ]
        positions = client.produce(topic, records)
        assert read_all(client, topic, 6, 24) == as_read(records, positions)

    def test_an_offset_out_of_range_resets_to_the_earliest(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic()
        client.produce(topic, numbered_records(10))
        with client.reader(topic, {0: 1_000_000}) as reader:
            assert [record.offset for record in reader.take(10)] == list(range(10))


class Offsets:
    def test_the_ends_of_a_partition(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic(partitions=2)
        assert (client.earliest(topic, 0), client.latest(topic, 0)) == (0, 0)
        client.produce(topic, [record._replace(partition=1) for record in numbered_records(12)])
        assert (client.earliest(topic, 1), client.latest(topic, 1)) == (0, 12)
        assert client.latest(topic, 0) == 0

    def test_offsets_by_time(self, client: Client, new_topic: NewTopic) -> None:
        """Batches of several records each, and a timestamp that goes back: the answer is a record's, not a batch's."""
        topic = new_topic()
        times = [0, 10, 20, 20, 30, 25, 40, 50]
        for at in range(0, len(times), 2):
            batch = [Record(b"k", b"v", (), BASE_TIMESTAMP_MS + time, 0) for time in times[at : at + 2]]
            client.produce(topic, batch)
        expected = {-5: 0, 0: 0, 1: 1, 10: 1, 15: 2, 20: 2, 21: 4, 30: 4, 31: 6, 50: 7}
        assert {time: client.offset_for_time(topic, 0, BASE_TIMESTAMP_MS + time) for time in expected} == expected
        assert client.offset_for_time(topic, 0, BASE_TIMESTAMP_MS + 51) is None


class Topics:
    def test_creates_lists_and_describes(self, client: Client, topic_name: TopicName) -> None:
        topic = topic_name()
        client.create_topic(topic, 5, {"retention.ms": "86400000", "cleanup.policy": "compact,delete"})
        wait_until(lambda: topic in client.topics())
        wait_until(lambda: client.partition_count(topic) == 5)
        assert client.produce(topic, [Record(b"k", b"v", (), BASE_TIMESTAMP_MS, 4)]) == [Position(4, 0)]

    def test_refuses_what_kafka_refuses(self, client: Client, topic_name: TopicName, new_topic: NewTopic) -> None:
        def code_of(topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> int:
            with pytest.raises(Refused) as refused:
                client.create_topic(topic, partitions, configs or {})
            return refused.value.code

        assert code_of(new_topic()) == TOPIC_ALREADY_EXISTS
        assert code_of("no spaces, please") == INVALID_TOPIC
        assert code_of("x" * 250) == INVALID_TOPIC
        assert code_of(topic_name(), configs={"retention.ms": "soon"}) == INVALID_CONFIG
        assert code_of(topic_name(), configs={"no.such.setting": "1"}) == INVALID_CONFIG

    def test_a_deleted_topic_is_gone_and_its_name_free(self, client: Client, topic_name: TopicName) -> None:
        topic = topic_name()
        client.create_topic(topic, 2, {})
        client.produce(topic, numbered_records(10, partitions=2))
        client.delete_topic(topic)
        wait_until(lambda: topic not in client.topics())
        with pytest.raises(Refused) as refused:
            client.delete_topic(topic)
        assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION

        client.create_topic(topic, 1, {})
        wait_until(lambda: client.partition_count(topic) == 1)
        assert (client.earliest(topic, 0), client.latest(topic, 0)) == (0, 0)
        sent = numbered_records(3)
        positions = client.produce(topic, sent)
        assert read_all(client, topic, 1, 3) == as_read(sent, positions)

    def test_adds_partitions(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic(partitions=2)
        client.produce(topic, numbered_records(4, partitions=2))
        client.create_partitions(topic, 5)
        wait_until(lambda: client.partition_count(topic) == 5)
        added = (2, 3, 4)
        records = [Record(b"k", b"v", (), BASE_TIMESTAMP_MS, partition) for partition in added]
        assert client.produce(topic, records) == [Position(partition, 0) for partition in added]
        assert client.latest(topic, 0) == 2
        with pytest.raises(Refused) as refused:
            client.create_partitions(topic, 3)
        assert refused.value.code == INVALID_PARTITIONS


class AutoCreation:
    def test_producing_to_an_unknown_topic_creates_it(self, client: Client, topic_name: TopicName) -> None:
        topic = topic_name()
        assert client.produce(topic, [Record(b"k", b"v", (), BASE_TIMESTAMP_MS)]) == [Position(0, 0)]
        wait_until(lambda: topic in client.topics())
        wait_until(lambda: client.partition_count(topic) == 1)


class Configs:
    def test_describes_and_alters(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic(segment_bytes="1048576")
        before = client.topic_configs(topic)
        assert before["segment.bytes"] == "1048576"
        assert before["retention.ms"] == "604800000"
        assert before["cleanup.policy"] == "delete"
        client.alter_topic_configs(topic, {"segment.bytes": "1048576", "max.message.bytes": "1500"})
        after = before | {"max.message.bytes": "1500"}
        wait_until(lambda: client.topic_configs(topic) == after)
        with pytest.raises(Refused) as refused:
            client.produce(topic, [Record(b"k", b"x" * 2_000, (), BASE_TIMESTAMP_MS, 0)])
        assert refused.value.code == MESSAGE_TOO_LARGE

    def test_refuses_an_invalid_value(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic()
        with pytest.raises(Refused) as refused:
            client.alter_topic_configs(topic, {"cleanup.policy": "shred"})
        assert refused.value.code == INVALID_CONFIG
        assert client.topic_configs(topic)["cleanup.policy"] == "delete"


class DeletingRecords:
    def test_the_log_start_moves_and_readers_below_it_are_reset(self, client: Client, new_topic: NewTopic) -> None:
        topic = new_topic()
        records = numbered_records(40)
        positions = client.produce(topic, records)
        client.delete_records(topic, 0, 25)
        assert (client.earliest(topic, 0), client.latest(topic, 0)) == (25, 40)
        with client.reader(topic, {0: 3}) as reader:
            assert reader.take(15) == as_read(records, positions)[25:]
        client.delete_records(topic, 0, -1)
        assert (client.earliest(topic, 0), client.latest(topic, 0)) == (40, 40)


class Cluster:
    def test_describes_the_cluster(self, client: Client, bootstrap: str) -> None:
        description = client.cluster()
        assert len(description.cluster_id) == 22
        assert bootstrap in description.brokers.values()
        assert description.controller in description.brokers


class Contract:
    """All of it, for a client that can do everything: pytest collects the classes inside."""

    TestProducing = Producing
    TestCompression = Compression
    TestPipelining = Pipelining
    TestReading = Reading
    TestOffsets = Offsets
    TestTopics = Topics
    TestAutoCreation = AutoCreation
    TestConfigs = Configs
    TestDeletingRecords = DeletingRecords
    TestCluster = Cluster
