"""Java's kafka-clients: the reference, in the newest version of every request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from clients import contract
from clients.cases import BASE_TIMESTAMP_MS, numbered_records
from clients.drivers import Record, Refused
from clients.drivers.java import JavaClient
from waiting import wait_until

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_CONFIG = 40
INVALID_REQUEST = 42


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[JavaClient]:
    with closing(JavaClient(bootstrap)) as client:
        yield client


class TestContract(contract.Contract): ...


class TestInspection:
    """What operators and web consoles ask through the Admin client."""

    def test_offsets_of_every_kind(self, client: JavaClient, new_topic: contract.NewTopic) -> None:
        topic = new_topic()
        for time in (10, 70, 30):
            client.produce(topic, [Record(b"k", b"v", (), BASE_TIMESTAMP_MS + time, 0)])

        def offset(spec: str) -> tuple[int, int]:
            found = client.call("offset", topic=topic, partition=0, spec=spec)
            return found["offset"], found["timestamp"]

        assert offset("earliest") == (0, -1)
        assert offset("latest") == (3, -1)
        assert offset("earliest_local") == (0, -1)
        assert offset("latest_tiered") == (-1, -1)
        assert offset("max_timestamp") == (1, BASE_TIMESTAMP_MS + 70)
        assert offset(str(BASE_TIMESTAMP_MS + 20)) == (1, BASE_TIMESTAMP_MS + 70)
        assert offset(str(BASE_TIMESTAMP_MS + 71)) == (-1, -1)

    def test_describes_a_topic_in_pages(self, client: JavaClient, new_topic: contract.NewTopic) -> None:
        topic = new_topic(partitions=5)
        description = client.call("describe_topic", topic=topic)
        (broker,) = client.cluster().brokers
        assert description["name"] == topic
        assert description["id"] == client.call("topic_id", topic=topic)
        assert not description["internal"]
        assert description["partitions"] == [
            {"partition": n, "leader": broker, "replicas": [broker], "isr": [broker], "elr": [], "lastKnownElr": []}
            for n in range(5)
        ]

    def test_an_unknown_topic_has_no_description(self, client: JavaClient, topic_name: contract.TopicName) -> None:
        with pytest.raises(Refused) as refused:
            client.call("describe_topic", topic=topic_name())
        assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION

    def test_creation_answers_with_what_was_created(self, client: JavaClient, topic_name: contract.TopicName) -> None:
        topic = topic_name()
        created = client.call("create_topic", topic=topic, partitions=3, configs={"retention.ms": "1000000"})
        assert (created["partitions"], created["replicas"]) == (3, 1)
        assert created["configs"]["retention.ms"] == "1000000"
        assert created["configs"]["segment.bytes"] == "1073741824"
        wait_until(lambda: topic in client.topics())
        assert client.call("topic_id", topic=topic) == created["topicId"]

    def test_log_directories_tell_sizes(self, client: JavaClient, new_topic: contract.NewTopic) -> None:
        topic = new_topic(partitions=2)
        client.produce(topic, numbered_records(10))
        (broker,) = client.cluster().brokers
        (directory,) = client.call("log_dirs", broker=broker).values()
        assert directory["sizes"][f"{topic}-0"] > 1000
        assert directory["sizes"][f"{topic}-1"] == 0
        assert directory["total"] >= directory["usable"] > 0

    def test_active_producers(self, client: JavaClient, new_topic: contract.NewTopic) -> None:
        topic = new_topic()
        client.produce(topic, numbered_records(5))
        assert client.call("producers", topic=topic, partition=0) == []
        client.produce(topic, numbered_records(7), idempotent=True)
        (producer,) = client.call("producers", topic=topic, partition=0)
        assert producer["id"] >= 0
        assert (producer["epoch"], producer["lastSequence"], producer["transactionStart"]) == (0, 6, -1)
        assert producer["lastTimestamp"] == BASE_TIMESTAMP_MS + 6

    def test_features(self, client: JavaClient) -> None:
        features = client.call("features")
        assert features["epoch"] >= 0
        assert features["finalized"]["metadata.version"] > 0
        for name, level in features["finalized"].items():
            lowest, highest = features["supported"][name]
            assert lowest <= level <= highest, name

    def test_the_metadata_quorum(self, client: JavaClient) -> None:
        quorum = client.call("quorum")
        (voter,) = quorum["voters"]
        assert voter["id"] == quorum["leader"]
        assert quorum["epoch"] >= 1
        assert 0 < quorum["highWatermark"] <= voter["endOffset"]
        assert quorum["observers"] == 0

    def test_lists_what_can_be_configured(self, client: JavaClient, new_topic: contract.NewTopic) -> None:
        topic = new_topic()
        assert topic in client.call("config_resources", type="TOPIC")
        (broker,) = client.cluster().brokers
        assert str(broker) in client.call("config_resources", type="BROKER")


class TestDynamicSettings:
    def test_every_kind_of_change_to_a_topic(self, client: JavaClient, new_topic: contract.NewTopic) -> None:
        topic = new_topic()

        def change(kind: str, key: str, value: str | None = None) -> None:
            client.call("change_config", type="TOPIC", name=topic, change=kind, key=key, value=value)

        def expect(key: str, value: str, source: str) -> None:
            def seen() -> bool:
                described = client.call("broker_configs", type="TOPIC", name=topic)[key]
                return (described["value"], described["source"]) == (value, source)

            wait_until(seen)

        expect("cleanup.policy", "delete", "DEFAULT_CONFIG")
        change("APPEND", "cleanup.policy", "compact")
        expect("cleanup.policy", "delete,compact", "DYNAMIC_TOPIC_CONFIG")
        change("SUBTRACT", "cleanup.policy", "delete")
        expect("cleanup.policy", "compact", "DYNAMIC_TOPIC_CONFIG")
        change("DELETE", "cleanup.policy")
        expect("cleanup.policy", "delete", "DEFAULT_CONFIG")
        change("SET", "retention.ms", "5000")
        expect("retention.ms", "5000", "DYNAMIC_TOPIC_CONFIG")
        with pytest.raises(Refused) as refused:
            change("APPEND", "retention.ms", "1")
        assert refused.value.code == INVALID_CONFIG

    def test_topic_settings_are_described_in_full(self, client: JavaClient, new_topic: contract.NewTopic) -> None:
        described = client.call("broker_configs", type="TOPIC", name=new_topic(segment_ms="3600000"))
        assert described["segment.ms"] == {
            "value": "3600000",
            "source": "DYNAMIC_TOPIC_CONFIG",
            "readOnly": False,
            "sensitive": False,
            "type": "LONG",
            "documented": True,
            "synonyms": ["segment.ms:DYNAMIC_TOPIC_CONFIG"],
        }
        assert described["compression.type"]["type"] == "STRING"
        assert described["cleanup.policy"]["type"] == "LIST"
        assert described["preallocate"]["type"] == "BOOLEAN"

    def test_broker_settings(self, client: JavaClient) -> None:
        (broker,) = client.cluster().brokers
        described = client.call("broker_configs", type="BROKER", name=str(broker))
        assert described["node.id"]["value"] == str(broker)
        assert described["node.id"]["readOnly"]
        assert described["message.max.bytes"]["value"] == "1048588"
        assert not described["message.max.bytes"]["readOnly"]

        def value() -> tuple[str, str]:
            now = client.call("broker_configs", type="BROKER", name=str(broker))["log.cleaner.backoff.ms"]
            return now["value"], now["source"]

        change = {"type": "BROKER", "name": str(broker), "key": "log.cleaner.backoff.ms"}
        client.call("change_config", change="SET", value="14999", **change)
        wait_until(lambda: value() == ("14999", "DYNAMIC_BROKER_CONFIG"))
        client.call("change_config", change="DELETE", value=None, **change)
        wait_until(lambda: value() == ("15000", "DEFAULT_CONFIG"))
        with pytest.raises(Refused) as refused:
            client.call("change_config", type="BROKER", name=str(broker), change="SET", key="node.id", value="77")
        assert refused.value.code == INVALID_REQUEST
