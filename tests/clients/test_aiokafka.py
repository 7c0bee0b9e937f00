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


class TestContract(contract.Contract): ...
