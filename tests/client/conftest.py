"""The clients of `penstock`, against a real broker whose groups do not wait for more members."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from client_world import NewTopic
from penstock import Admin
from penstock.testing.nodes import RunningNode, start_node


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with start_node(tmp_path_factory.mktemp("clients") / "node", properties=properties) as node:
        yield node


@pytest.fixture(scope="session")
def bootstrap(broker: RunningNode) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def new_topic(bootstrap: str, unique_topic: Callable[[str], str]) -> Iterator[NewTopic]:
    with Admin(bootstrap) as admin:

        def create(partitions: int = 1, **configs: str) -> str:
            name = unique_topic("client")
            named = {key.replace("_", "."): value for key, value in configs.items()}
            admin.topics.create(name, partitions=partitions, configs=named)
            return name

        yield create
