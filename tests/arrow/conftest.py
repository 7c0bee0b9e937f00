from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.client.wire.admin import Admin

NewTopic = Callable[..., str]


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as admin:
        yield admin


@pytest.fixture
def new_topic(admin: Admin, unique_topic: Callable[[str], str]) -> NewTopic:
    """`new_topic(partitions=3, **{"cleanup.policy": "compact"})`: its name. Records may be of any age."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = unique_topic("arrow")
        admin.topics.create(name, partitions=partitions, configs={"retention.ms": "-1", **configs})
        return name

    return create
