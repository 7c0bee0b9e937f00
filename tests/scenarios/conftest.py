"""A connection to the broker that the tests of this process share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.testing.nodes import RunningNode
from wire import Wire


@pytest.fixture
def wire(broker: RunningNode) -> Iterator[Wire]:
    with Wire(broker) as connection:
        yield connection


@pytest.fixture
def complaints(broker: RunningNode) -> Callable[[], str]:
    """What the broker has logged since the test began."""
    before = len(broker.log_text())
    return lambda: broker.log_text()[before:]
