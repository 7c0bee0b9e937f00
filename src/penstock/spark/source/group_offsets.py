"""Commits a Spark query's offsets to a consumer group without members, for `penstock groups describe`.

The offsets that count are in Spark's checkpoint; these are a copy for people and tools. Two components commit them. The
source, in Spark's planner process, commits whenever Spark asks it for more, which tells how far the query is. The
listener on the driver commits from the progress of finished batches, which the source may never hear of (`once`, long
triggers, the last batch before a stop). The source is never late, so the listener moves a group that the source also
commits only forward.

The source does not know its query. Without `kafka.group.id` the group is named after the query, and only the listener
commits.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition


class GroupProgress:
    """Commits offsets in one cluster. For one thread. Each call takes at most a few times `timeout`, and raises a
    ClientError or KafkaError if it could not commit; the next call starts with new connections."""

    def __init__(self, bootstrap: str, *, timeout: float) -> None:
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._admin: Admin | None = None

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], *, only_forward: bool = False) -> None:
        if self._admin is None:
            self._admin = Admin(self._bootstrap, timeout=self._timeout)
        try:
            if only_forward:
                known = self._admin.groups.offsets(group)
                offsets = {
                    each: offset for each, offset in offsets.items() if each not in known or known[each].offset < offset
                }
            if offsets:
                self._admin.groups.alter_offsets(group, offsets)
        except (ClientError, KafkaError):
            self.close()
            raise

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None
