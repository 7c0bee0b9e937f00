"""One Spark and one cluster a test process, shared by all of tests/spark.

One worker runs all of this folder (tests/conftest.py), so that one JVM starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewTopic = Callable[..., str]

TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores that lives as long as the test process. What a test sets on it, it sets back."""
    from penstock.spark import session

    spark = session(
        "penstock-tests",
        master="local[2]",
        config={
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
        },
    )
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def penstock_spark(spark: SparkSession) -> SparkSession:
    """For `penstock_pipeline`: no second session."""
    return spark


@pytest.fixture(scope="session")
def _one_broker() -> Iterator[Cluster]:
    with Cluster(brokers=1, properties=TWO_PHASE) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _three_brokers() -> Iterator[Cluster]:
    with Cluster(brokers=3, properties=TWO_PHASE) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _one_phase_broker() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def cluster(_one_broker: Cluster) -> Iterator[Cluster]:
    """One broker with two-phase commit, shared: topics are told apart by `new_topic`. Healed after the test."""
    yield _one_broker
    _one_broker.heal()


@pytest.fixture
def three_brokers(_three_brokers: Cluster) -> Iterator[Cluster]:
    """Three of them, for tests in which brokers die."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture
def one_phase_cluster(_one_phase_broker: Cluster) -> Iterator[Cluster]:
    """One broker without two-phase commit, as clusters are unless told otherwise."""
    yield _one_phase_broker
    _one_phase_broker.heal()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, unique_topic: Callable[[str], str]) -> NewTopic:
    """`new_topic(partitions=3, **{"cleanup.policy": "compact"})`: its name, on `three_brokers` if the test asks for
    those, else on `cluster`; or said: `new_topic(on=one_phase_cluster)`. Records may be of any age."""
    usual = "three_brokers" if "three_brokers" in request.fixturenames else "cluster"

    def create(partitions: int = 1, *, on: Cluster | None = None, **configs: str) -> str:
        where: Cluster = on or request.getfixturevalue(usual)
        return where.create_topic(unique_topic("spark"), partitions, configs={"retention.ms": "-1", **configs})

    return create
