"""Client tests run against a real `penstock server`; with PENSTOCK_TEST_BOOTSTRAP=host:port against any Kafka cluster.

The second is how the tests themselves are tested: what Apache Kafka does not answer, Penstock need not answer. With
PENSTOCK_TEST_LOG_DIR=path the tests that look at the files find that cluster's log directory there.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from clients.drivers import DEADLINE_S
from clients.drivers.kafka_python import KafkaPython
from waiting import wait_until

pytest.register_assert_rewrite("clients.contract")

NewTopicFixture = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """host:port of the cluster under test."""
    elsewhere = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
    return elsewhere or request.getfixturevalue("broker").bootstrap


@pytest.fixture(scope="session")
def topic_name() -> Iterator[Callable[[], str]]:
    """Names that no other test, worker or earlier run on the same cluster uses."""
    run, numbers = uuid.uuid4().hex[:8], itertools.count()
    yield lambda: f"clients-{run}-{next(numbers)}"


@pytest.fixture(scope="session")
def new_topic(bootstrap: str, topic_name: Callable[[], str]) -> NewTopicFixture:
    """Create a topic and return its name; by one client for all tests, so that none needs its own for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def serves(topic: str, partitions: int) -> bool:
        if len(admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) < partitions:
            return False
        offsets = admin.list_offsets({TopicPartition(topic, n): OffsetSpec.latest() for n in range(partitions)})
        return all(answer.exception(DEADLINE_S) is None for answer in offsets.values())

    def create(partitions: int = 1, **configs: str) -> str:
        name = topic_name()
        topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in configs.items()})
        admin.create_topics([topic], operation_timeout=DEADLINE_S)[name].result(DEADLINE_S)
        # Kafka answers once the topic is committed; a record sent before its leader has heard of it is sent again
        # later, and may then come after records sent later.
        wait_until(lambda: serves(name, partitions), f"{name} is served")
        return name

    return create


@pytest.fixture(scope="session")
def stored_bytes(bootstrap: str) -> Iterator[Callable[[str], int]]:
    """How large a topic's first partition is in the log."""
    with closing(KafkaPython(bootstrap)) as client:

        def ask(topic: str) -> int:
            (broker,) = client.admin.describe_log_dirs({topic: [0]})
            (described,) = broker["log_dirs"][0]["topics"]
            return int(described["partitions"][0]["partition_size"])

        yield ask
