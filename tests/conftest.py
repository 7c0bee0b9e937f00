"""What all tests share: one real broker a test process, and names that are used once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.nodes import RunningNode


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A running node that tests share; topics are kept apart by `unique_topic`. Who kills it starts it again."""
    from penstock.testing.nodes import start_node

    with start_node(tmp_path_factory.mktemp("broker") / "node") as node:
        yield node


@pytest.fixture(scope="session")
def unique_topic() -> Callable[[str], str]:
    """`unique_topic("orders")`: a topic name no other test has."""
    numbers = itertools.count(1)
    process = os.getpid()

    def name(prefix: str = "topic") -> str:
        return f"{prefix}-{process}-{next(numbers)}"

    return name
