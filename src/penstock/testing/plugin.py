"""The pytest plugin: real brokers as fixtures, without any set-up.

    def test_orders_arrive(penstock_broker, penstock_topic):
        place_order(bootstrap=penstock_broker.bootstrap, topic=penstock_topic)
        ...

`penstock_broker` is one broker and `penstock_cluster` three. Each starts when a test first requests it, is shared by
the tests of the process, and ends with it. After each test its changes are undone: brokers that it killed, stopped or
paused run again. `penstock_topic` is a topic for this test only. Override `penstock_properties` in a conftest.py to
give the brokers settings by Kafka's names.

A test that is marked `@pytest.mark.penstock_users(alice="password")` gets brokers of its own, with TLS, passwords and
ACLs: `penstock_cluster.client_properties("alice")`. Override `penstock_users` to secure the shared brokers instead.

`penstock_share_group` is a share group that reads `penstock_topic` from its first record: `consumer()` is a worker,
`lag` what is left to do, and `wait_until_done()` waits for the application's workers.

`penstock_pipeline` tests data pipelines, on Spark and without a broker: `penstock_pipeline("orders.yaml").check()` runs
the tests in the file, and `run` returns the output for given rows. Override `penstock_spark` to provide a session.

pytest loads this in every run where Penstock is installed, so it imports nothing until a fixture is requested.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.model import Pipeline
    from penstock.testing.cluster import Cluster
    from penstock.testing.pipelines import PipelineUnderTest
    from penstock.testing.share_groups import ShareGroupUnderTest

CLUSTER_SIZE = 3
TOPIC_NAME_MAX = 200


@pytest.fixture(scope="session")
def penstock_properties() -> Mapping[str, str]:
    """Settings of every broker by Kafka's names; override it to give some."""
    return {}


@pytest.fixture(scope="session")
def penstock_users() -> Mapping[str, str] | None:
    """Passwords by user; override it to give all brokers TLS, passwords and ACLs."""
    return None


@pytest.fixture(scope="session")
def _penstock_session_broker(
    penstock_properties: Mapping[str, str], penstock_users: Mapping[str, str] | None
) -> Iterator[Cluster]:
    from penstock.testing.cluster import Cluster

    with Cluster(brokers=1, properties=penstock_properties, users=penstock_users) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _penstock_session_cluster(
    penstock_properties: Mapping[str, str], penstock_users: Mapping[str, str] | None
) -> Iterator[Cluster]:
    from penstock.testing.cluster import Cluster

    with Cluster(brokers=CLUSTER_SIZE, properties=penstock_properties, users=penstock_users) as cluster:
        yield cluster


@pytest.fixture
def penstock_broker(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A real broker, shared by all tests: `penstock_broker.bootstrap`."""
    yield from _brokers(request, 1, "_penstock_session_broker")


@pytest.fixture
def penstock_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three real brokers, shared by all tests: `penstock_cluster.kill(penstock_cluster.leader_of("orders"))`."""
    yield from _brokers(request, CLUSTER_SIZE, "_penstock_session_cluster")


def _brokers(request: pytest.FixtureRequest, count: int, shared: str) -> Iterator[Cluster]:
    marker = request.node.get_closest_marker("penstock_users")
    if marker is not None:
        from penstock.testing.cluster import Cluster

        properties: Mapping[str, str] = request.getfixturevalue("penstock_properties")
        with Cluster(brokers=count, properties=properties, users=marker.kwargs) as own:
            yield own
        return
    cluster: Cluster = request.getfixturevalue(shared)
    yield cluster
    cluster.heal()


@pytest.fixture
def penstock_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic for this test only: on `penstock_cluster` if requested, else on `penstock_broker`.

    One partition, unless marked `@pytest.mark.penstock_topic(partitions=3)`; the mark also accepts `replicas` and
    `configs`.
    """
    cluster = _cluster_of(request)
    marker = request.node.get_closest_marker("penstock_topic")
    name = _topic_name(request.node.name)
    cluster.create_topic(name, **(marker.kwargs if marker is not None else {}))
    yield name
    cluster.heal()
    with cluster.admin() as admin:
        if name in {topic.name for topic in admin.topics.list()}:
            admin.topics.delete(name)


def _cluster_of(request: pytest.FixtureRequest) -> Cluster:
    where = "penstock_cluster" if "penstock_cluster" in request.fixturenames else "penstock_broker"
    cluster: Cluster = request.getfixturevalue(where)
    return cluster


@pytest.fixture
def penstock_share_group(request: pytest.FixtureRequest, penstock_topic: str) -> Iterator[ShareGroupUnderTest]:
    """A share group that reads `penstock_topic` from its first record; its name is `penstock_share_group.name`."""
    from penstock.testing.share_groups import ShareGroupUnderTest

    cluster = _cluster_of(request)
    group = ShareGroupUnderTest(cluster, f"{penstock_topic}.workers", penstock_topic)
    yield group
    cluster.heal()
    group.delete()


@pytest.fixture(scope="session")
def penstock_spark() -> Iterator[SparkSession]:
    """A session on two cores of this machine, with the time zone UTC."""
    from penstock.spark import session

    config = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    spark = session("penstock-tests", master="local[2]", config=config)
    yield spark
    spark.stop()


@pytest.fixture
def penstock_pipeline(penstock_spark: SparkSession) -> Callable[..., PipelineUnderTest]:
    """`penstock_pipeline("orders.yaml", environment="prod", minimum="10")`: from a file and values of its parameters,
    or from a `Pipeline` made in Python."""
    from penstock.testing.pipelines import PipelineUnderTest

    def under_test(
        pipeline: str | os.PathLike[str] | Pipeline, environment: str | None = None, **parameters: str
    ) -> PipelineUnderTest:
        return PipelineUnderTest(penstock_spark, pipeline, environment, parameters)

    return under_test


def _topic_name(test: str) -> str:
    """Return the test's name as a valid topic name, with a suffix that distinguishes it from earlier runs."""
    readable = re.sub(r"[^a-zA-Z0-9._-]+", "-", test).strip("-.")[:TOPIC_NAME_MAX]
    return f"{readable}-{os.urandom(4).hex()}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "penstock_users(NAME=PASSWORD, ...): brokers for this test only, with TLS, passwords and ACLs"
    )
    config.addinivalue_line(
        "markers", "penstock_topic(partitions, replicas, configs): how the topic of `penstock_topic` is created"
    )
