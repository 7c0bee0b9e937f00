"""confluent-kafka (librdkafka), the client most Python programs use."""

from __future__ import annotations

import contract
import pytest
from drivers.confluent import ConfluentKafka


@pytest.fixture(scope="module")
def client(bootstrap: str) -> ConfluentKafka:
    return ConfluentKafka(bootstrap)


class TestProducing(contract.Producing): ...


class TestPipelining(contract.Pipelining): ...


class TestReading(contract.Reading): ...


class TestOffsets(contract.Offsets): ...


class TestTopics(contract.Topics): ...


class TestAutoCreation(contract.AutoCreation): ...


class TestConfigs(contract.Configs): ...


class TestDeletingRecords(contract.DeletingRecords): ...


class TestCluster(contract.Cluster): ...
