"""A share group for one test: `penstock_share_group` of the pytest plugin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.model.errors import ErrorCode, KafkaError
from penstock.testing.cluster import Cluster

if TYPE_CHECKING:
    from penstock.client.wire.admin.share_groups import ShareOffset
    from penstock.client.wire.share.consumer import ShareConsumer

PAUSE_S = 0.05


class ShareGroupUnderTest:
    """A share group that reads a topic from its first record on, whenever that is written."""

    def __init__(self, cluster: Cluster, name: str, topic: str) -> None:
        self.name = name
        self.topic = topic
        self._cluster = cluster
        with cluster.admin() as admin:
            admin.share_groups.reset(name, "earliest", topics=[topic])

    def __str__(self) -> str:
        return self.name

    def consumer(self, **options: Any) -> ShareConsumer[Any, Any]:
        """A worker of the group; with the options of `ShareConsumer`."""
        from penstock.client.wire.share.consumer import ShareConsumer

        return ShareConsumer(self._cluster.bootstrap, self.topic, group=self.name, **options)

    def offsets(self) -> list[ShareOffset]:
        with self._cluster.admin() as admin:
            return admin.share_groups.offsets(self.name)

    @property
    def lag(self) -> int:
        """How many records are neither accepted nor given up."""
        return sum(each.lag or 0 for each in self.offsets())

    def wait_until_done(self, timeout: float = 30.0) -> None:
        """Wait until no record is left to do; raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while self.lag:
            if time.monotonic() > deadline:
                raise TimeoutError(f"share group {self.name} has {self.lag} records to do: {self.offsets()}")
            time.sleep(PAUSE_S)

    def delete(self) -> None:
        """Delete the group, unless the test has left workers running."""
        with self._cluster.admin() as admin:
            try:
                admin.share_groups.delete([self.name])
            except KafkaError as error:
                if error.code not in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND):
                    raise
