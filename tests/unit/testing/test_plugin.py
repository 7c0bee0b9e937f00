"""The pytest plugin, as tests of an application use it: in a pytest run of its own."""

from __future__ import annotations

import pytest

from penstock.testing import Cluster

pytest_plugins = ["pytester"]

APPLICATION_TESTS = """
import pytest
from confluent_kafka import Consumer, Producer


def produce(bootstrap, topic, value, partition=-1):
    outcome = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60000})
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, message: outcome.append(error))
    producer.flush(60)
    if outcome[0] is not None:
        raise RuntimeError(str(outcome))


def read(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        return consumer.consume(1, timeout=60)[0].value()
    finally:
        consumer.close()


@pytest.fixture(scope="session")
def penstock_properties():
    return {"message.max.bytes": "5000"}


@pytest.mark.parametrize("value", [b"a", b"b c"])
def test_a_topic_of_its_own(penstock_broker, penstock_topic, value):
    produce(penstock_broker.bootstrap, penstock_topic, value)
    assert read(penstock_broker.bootstrap, penstock_topic) == value


def test_a_broker_dies(penstock_broker, penstock_topic):
    penstock_broker.kill(1)
    assert penstock_broker.running_ids == []


def test_and_runs_again_for_the_next(penstock_broker):
    assert penstock_broker.running_ids == [1]
    with penstock_broker.admin() as admin:
        assert not [topic for topic in admin.topics.list() if "test" in topic.name]


@pytest.mark.penstock_topic(partitions=2, configs={"min.insync.replicas": "1"})
def test_a_leader_dies(penstock_cluster, penstock_topic):
    dead = penstock_cluster.leader_of(penstock_topic, 1)
    penstock_cluster.kill(dead)
    hangs = next(broker for broker in penstock_cluster.running_ids)
    penstock_cluster.pause(hangs)
    produce(penstock_cluster.bootstrap, penstock_topic, b"survives", partition=1)
    penstock_cluster.resume(hangs)
    penstock_cluster.restart(hangs)
    assert read(penstock_cluster.bootstrap, penstock_topic) == b"survives"
    assert penstock_cluster.leader_of(penstock_topic, 1) != dead


def test_everybody_is_back(penstock_cluster):
    assert penstock_cluster.running_ids == [1, 2, 3]


def test_settings(penstock_broker, penstock_topic):
    with pytest.raises(RuntimeError, match="MSG_SIZE_TOO_LARGE"):
        produce(penstock_broker.bootstrap, penstock_topic, b"x" * 10000)


def test_a_queue(penstock_broker, penstock_topic, penstock_share_group):
    for number in range(3):
        produce(penstock_broker.bootstrap, penstock_topic, b"%d" % number)
    assert penstock_share_group.lag == 3
    with pytest.raises(TimeoutError, match="3 records to do"):
        penstock_share_group.wait_until_done(timeout=0)
    with penstock_share_group.consumer(max_records=1) as worker:
        assert sorted(record.value for record in worker.records(idle=1)) == [b"0", b"1", b"2"]
    penstock_share_group.wait_until_done()
    assert [each.lag for each in penstock_share_group.offsets()] == [0]


def test_queues_do_not_stay(penstock_broker):
    with penstock_broker.admin() as admin:
        assert admin.share_groups.list() == []


@pytest.mark.penstock_users(alice='a "password"', eve="hers")
def test_users(penstock_broker, penstock_topic):
    from penstock import Acl, Admin, Consumer, Producer
    from penstock.client.errors import NotAuthorized

    with penstock_broker.admin() as admin:
        admin.acls.create(
            [Acl(principal="User:alice", operation="ALL", resource_type="TOPIC", resource=penstock_topic)]
        )
    with Producer(penstock_broker.bootstrap, settings=penstock_broker.client_properties("alice")) as producer:
        producer.send(penstock_topic, b"hers")
    with Consumer(f"@{penstock_broker.client_file('alice')}", penstock_topic, start="earliest") as consumer:
        assert next(iter(consumer)).value == b"hers"
    with pytest.raises(NotAuthorized):
        Producer(f"@{penstock_broker.client_file('eve')}").send(penstock_topic, b"x")
"""


def test_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(APPLICATION_TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=10)


def test_loading_the_plugin_is_cheap(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "penstock.testing.plugin" in sys.modules
            assert not [name for name in sys.modules if name.startswith(("penstock.client", "penstock.protocol"))]
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_cluster_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster(brokers=0)
    with pytest.raises(RuntimeError, match="with-block"):
        Cluster().bootstrap  # noqa: B018
    with Cluster(brokers=1) as cluster, pytest.raises(ValueError, match=r"no broker has the id 7; there are \[1\]"):
        cluster.kill(7)
