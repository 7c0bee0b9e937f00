"""kafka-python, which speaks the newest versions of most requests without Java or C."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from clients import contract
from clients.cases import BASE_TIMESTAMP_MS, numbered_records
from clients.drivers.kafka_python import ConfigResource, ConfigResourceType, KafkaPython, TopicPartition
from waiting import wait_until


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaPython]:
    with closing(KafkaPython(bootstrap)) as client:
        yield client


class TestContract(contract.Contract): ...


class TestInspection:
    """What its Admin client can ask, in the newest versions."""

    def test_log_directories(self, client: KafkaPython, new_topic: contract.NewTopic) -> None:
        topic = new_topic(partitions=2)
        client.produce(topic, numbered_records(10))
        (broker,) = client.admin.describe_log_dirs({topic: [0, 1]})
        (directory,) = broker["log_dirs"]
        (described,) = directory["topics"]
        sizes = {each["partition_index"]: each["partition_size"] for each in described["partitions"]}
        assert (described["name"], directory["error_code"], sizes[1]) == (topic, 0, 0)
        assert sizes[0] > 1000

    def test_producers(self, client: KafkaPython, new_topic: contract.NewTopic) -> None:
        partition = TopicPartition(new_topic(), 0)
        client.produce(partition.topic, numbered_records(5), idempotent=True)
        (producer,) = client.admin.describe_producers([partition])[partition].active_producers
        assert (producer.producer_epoch, producer.last_sequence) == (0, 4)
        assert producer.last_timestamp == BASE_TIMESTAMP_MS + 4
        assert producer.coordinator_epoch == producer.current_transaction_start_offset == -1

    def test_topic_partitions_in_pages(self, client: KafkaPython, new_topic: contract.NewTopic) -> None:
        topic = new_topic(partitions=5)
        first = client.admin.describe_topic_partitions([topic], response_partition_limit=3)
        assert [each["partition_index"] for each in first["topics"][0]["partitions"]] == [0, 1, 2]
        cursor = first["next_cursor"]
        assert (cursor["topic_name"], cursor["partition_index"]) == (topic, 3)
        rest = client.admin.describe_topic_partitions([topic], response_partition_limit=3, cursor=cursor)
        assert [each["partition_index"] for each in rest["topics"][0]["partitions"]] == [3, 4]
        assert rest["next_cursor"] is None

    def test_features_and_quorum(self, client: KafkaPython) -> None:
        features = client.admin.describe_features()
        assert features["metadata.version"]["finalized"][1] > 0
        (topic,) = client.admin.describe_metadata_quorum()["topics"]
        (partition,) = topic["partitions"]
        (voter,) = partition["current_voters"]
        assert topic["topic_name"] == "__cluster_metadata"
        assert voter["replica_id"] == partition["leader_id"]
        assert partition["high_watermark"] > 0

    def test_config_resources(self, client: KafkaPython, new_topic: contract.NewTopic) -> None:
        topic = new_topic()
        resources = client.admin.list_config_resources()
        assert topic in resources["topic"]
        assert resources["broker"] == [str(broker) for broker in client.cluster().brokers]

    def test_a_topic_by_its_id(self, client: KafkaPython, new_topic: contract.NewTopic) -> None:
        topic = new_topic(partitions=2)
        (by_name,) = client.admin.describe_topics([topic])
        (by_id,) = client.admin.describe_topics([uuid.UUID(by_name["topic_id"])])
        assert by_id == by_name
        assert len(by_id["partitions"]) == 2

    def test_the_legacy_change_of_settings(self, client: KafkaPython, new_topic: contract.NewTopic) -> None:
        topic = new_topic(segment_ms="7200000")
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1000000"})
        assert client.admin.alter_configs([resource], incremental=False) == {"topic": {topic: "OK"}}

        def seen() -> tuple[str | None, str | None]:
            configs = client.topic_configs(topic)
            return configs["retention.ms"], configs["segment.ms"]

        wait_until(lambda: seen() == ("1000000", "7200000"))
