"""aiokafka, which asks in old versions of most requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from clients import contract
from clients.drivers.aio import AioKafka


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[AioKafka]:
    with closing(AioKafka(bootstrap)) as client:
        yield client


class TestProducing(contract.Producing): ...


class TestCompression(contract.Compression): ...


class TestPipelining(contract.Pipelining): ...


class TestReading(contract.Reading): ...


class TestOffsets(contract.Offsets): ...


class TestTopics(contract.Topics): ...


class TestAutoCreation(contract.AutoCreation): ...


class TestConfigs(contract.Configs): ...


class TestDeletingRecords(contract.DeletingRecords): ...


class TestCluster(contract.Cluster): ...
