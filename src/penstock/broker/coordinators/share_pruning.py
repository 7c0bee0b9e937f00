"""Deletes the beginning of `__share_group_state`: the records before the oldest snapshot that is still needed.

The topic is not compacted, because updates of a share partition add up: only a snapshot makes those before it
superfluous. A snapshot counts when it is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.partitions.replica import Replica
from penstock.settings.live import LiveSettings
from penstock.share_state.shard import ShareStateShard


class SharePruning:
    def __init__(
        self,
        shares: Coordinator[ShareStateShard],
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        delete_before: Callable[[Replica, int], None],
    ) -> None:
        """`delete_before` deletes the records of a log before an offset."""
        self._shares = shares
        self._settings = settings
        self._loop = loop
        self._delete_before = delete_before
        self._timer: asyncio.TimerHandle | None = None

    def set_timer(self) -> None:
        """Prune regularly from now on, as long as this broker has share coordinators."""
        if self._timer is None and self._shares.partitions:
            interval = self._settings.now.share_coordinator_state_topic_prune_interval_ms / 1000
            self._timer = self._loop.call_later(interval, self._prune_all)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _prune_all(self) -> None:
        self._timer = None
        for partition in list(self._shares.partitions.values()):
            if partition.shard is None or not partition.is_committed:
                continue
            needed_from = partition.shard.needed_from(partition.end_offset)
            if needed_from > partition.replica.log.log_start_offset:
                self._delete_before(partition.replica, needed_from)
        self.set_timer()
