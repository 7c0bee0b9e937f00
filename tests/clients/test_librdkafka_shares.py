"""confluent-kafka's ShareConsumer, a preview in librdkafka, on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until

RECORDS = 600


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Members learn of their partitions with a heartbeat.
        "group.share.min.heartbeat.interval.ms": "200",
        "group.share.heartbeat.interval.ms": "200",
    }
    with start_node(tmp_path_factory.mktemp("shares") / "node", properties=properties) as node:
        yield node


def prepare(node: RunningNode, name: str) -> None:
    """A topic with records, and a group of the same name that begins at its start."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([group]).values():
        future.result()
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0


def poll(consumer: ShareConsumer) -> list[Message]:
    messages = list(consumer.poll(0.2) or ())
    assert not [message.error() for message in messages if message.error()]
    return messages


def test_members_share_the_records_and_settle_each(node: RunningNode, unique_topic: Callable[[str], str]) -> None:
    name = unique_topic("work")
    prepare(node, name)
    config = {"bootstrap.servers": node.bootstrap, "group.id": name, "share.acknowledgement.mode": "explicit"}
    members = [ShareConsumer(config) for _ in range(2)]
    settled: Counter[bytes] = Counter()
    released: Counter[bytes] = Counter()

    def work() -> bool:
        for member in members:
            for message in poll(member):
                value = message.value()
                assert value is not None
                number = int(value)
                if number % 3 == 0 and not released[value]:
                    released[value] += 1
                    member.acknowledge(message, AcknowledgeType.RELEASE)
                else:
                    settled[value] += 1
                    member.acknowledge(message, AcknowledgeType.REJECT if number % 5 == 0 else AcknowledgeType.ACCEPT)
            member.commit_sync()
        return len(settled) == RECORDS

    for member in members:
        member.subscribe([name])
    wait_until(work)
    assert set(settled.values()) == {1}
    assert len(released) == RECORDS / 3
    for member in members:
        member.close()
    with ShareConsumer({**config, "share.acknowledgement.mode": "implicit"}) as late:
        late.subscribe([name])
        assert poll(late) == []
