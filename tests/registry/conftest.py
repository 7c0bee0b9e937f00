"""One broker and one registry for the tests of this folder; tests of several nodes start theirs on the same broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.nodes import RunningNode, start_node
from registry_nodes import Nodes

# Elections need not wait for members that do not come, and a dead writer is replaced within the shortest session.
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}


@pytest.fixture(scope="session")
def registry_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with start_node(tmp_path_factory.mktemp("registry") / "broker", properties=PROPERTIES) as node:
        yield node


@pytest.fixture
def nodes(registry_broker: RunningNode, tmp_path: object, unique_topic: object) -> Iterator[Nodes]:
    """Starts nodes of one registry with a topic of its own."""
    with Nodes(registry_broker.bootstrap, str(tmp_path), unique_topic("schemas")) as started:  # type: ignore[operator]
        yield started


@pytest.fixture(scope="session")
def registry_url(registry_broker: RunningNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that tests share; subjects are kept apart by `unique_topic`."""
    with Nodes(registry_broker.bootstrap, str(tmp_path_factory.mktemp("shared")), "_schemas") as started:
        yield started.start().url
