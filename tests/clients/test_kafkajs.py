"""kafkajs, the client of the JavaScript world."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from clients import contract
from clients.drivers.kafkajs import KafkaJs


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaJs]:
    with closing(KafkaJs(bootstrap)) as client:
        yield client


class TestContract(contract.Contract): ...
