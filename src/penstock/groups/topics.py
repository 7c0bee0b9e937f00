"""A narrow view of the cluster's topics for group coordinators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from penstock.model.ids import Uuid


class TopicsView(Protocol):
    @property
    def version(self) -> int:
        """A number that changes whenever topics are created, deleted or extended, and possibly more often."""

    def topic_id(self, name: str) -> Uuid | None: ...

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """Return the number of partitions; 0 for a topic that does not exist."""

    def topic_names(self) -> Iterable[str]: ...


class DeletedTopic(NamedTuple):
    name: str
    topic_id: Uuid


class NoTopics:
    """An empty view, used before any metadata has arrived."""

    version = -1

    def topic_id(self, name: str) -> Uuid | None:
        return None

    def topic_name(self, topic_id: Uuid) -> str | None:
        return None

    def partition_count(self, name: str) -> int:
        return 0

    def topic_names(self) -> Iterable[str]:
        return ()


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Return a number that changes when a topic in `names` is created, deleted or extended; 0 if none of them exists.

    It is stored with the group's epoch, so that a new coordinator knows whether anything has changed. Kafka hashes the
    same facts with another function (and the racks of replicas, which no assignor here uses): a group that moves
    between the two is assigned once more than necessary.
    """
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found = True
            digest.update(topic_id)
            digest.update(topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
