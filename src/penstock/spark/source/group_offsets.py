"""The consumer group of a Spark query: nobody's members, only its committed offsets, for `penstock groups describe`.

Spark keeps the offsets that count in its checkpoint; these are a copy for people and tools. Two commit them: the
source, in Spark's planner process, whenever Spark asks it for more and so tells how far it is; and the listener on the
driver, from the progress of finished batches, which the source may never hear of (`once`, long triggers, the last batch
before a stop). The source is never late, so the listener only ever moves a group forward that the source commits, too.

The source does not know its query. Without `kafka.group.id` the group is named after the query, and the listener
commits alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition


class GroupProgress:
    """Commits for one cluster. For one thread; each call takes no longer than a few times `timeout`, and raises a
    ClientError or KafkaError if it could not commit; the next begins anew."""

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
