"""Decides when to write a snapshot of the committed image, and which log segments and snapshots to delete.

Every node keeps its own snapshots: a voter, so that others can catch up without the whole log; an observer, so that its
next start is short. A snapshot is due after a number of bytes of records, or after an interval with any change; an
open metadata transaction delays it. A restart does not check the log below the newest snapshot, so the log is synced
that far before: by the thread that writes an observer's snapshot; a controller's snapshot waits for the quorum's sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

from penstock.broker.metadata.store import MetadataStore
from penstock.metadata.image import MetadataImage
from penstock.metadata.snapshot import QuorumConfiguration, SnapshotId
from penstock.model.errors import KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.settings.quorum import QuorumSettings

logger = logging.getLogger("penstock.quorum")


class _Snapshot(NamedTuple):
    image: MetadataImage
    quorum: QuorumConfiguration
    now_ms: int
    high_watermark: Callable[[], int]


@owned_by_loop()
class MetadataSnapshots:
    def __init__(
        self,
        store: MetadataStore,
        settings: QuorumSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        executor: Executor | None,
        on_log_trimmed: Callable[[], None],
    ) -> None:
        self._store = store
        self._write = store.write_snapshot if settings.is_controller else store.sync_and_write_snapshot
        self._settings = settings
        self._loop = loop
        self._now_ms = now_ms
        self._executor = executor
        self._on_log_trimmed = on_log_trimmed
        self._due: _Snapshot | None = None
        """Is written as soon as the log is synced that far."""
        self._writing: asyncio.Future[tuple[SnapshotId, int]] | None = None
        self._removing: asyncio.Future[None] | None = None
        self._last = SnapshotId(0, 0)
        self._last_ms = now_ms()
        self._bytes_since = 0
        self._is_closed = False

    def begin_with(self, snapshot: SnapshotId) -> None:
        """Set the newest snapshot: the one found at the start, or one fetched from the leader."""
        self._last = snapshot
        self._due = None
        self._last_ms = self._now_ms()
        self._bytes_since = 0

    def count(self, log_bytes: int) -> None:
        """Add to the bytes of log written since the last snapshot."""
        self._bytes_since += log_bytes

    def is_due(self, image: MetadataImage) -> bool:
        if self.is_writing or self._is_closed or image.offset + 1 <= self._last.offset:
            return False
        if image.transaction is not None:
            return False
        interval_ms = self._settings.metadata_log_max_snapshot_interval_ms
        large = self._bytes_since > self._settings.metadata_log_max_record_bytes_between_snapshots
        return large or 0 < interval_ms <= self._now_ms() - self._last_ms

    def write(self, image: MetadataImage, quorum: QuorumConfiguration, high_watermark: Callable[[], int]) -> None:
        assert not self.is_writing, "one snapshot at a time"
        now_ms = self._now_ms()
        self._bytes_since = 0
        self._last_ms = now_ms
        self._due = _Snapshot(image, quorum, now_ms, high_watermark)
        self.write_if_synced()

    def write_if_synced(self) -> None:
        due = self._due
        if due is None or self._is_closed:
            return
        if self._settings.is_controller and self._store.synced_offset <= due.image.offset:
            return
        self._due = None
        self._writing = self._loop.run_in_executor(self._executor, self._write, due.image, due.quorum, due.now_ms)
        self._writing.add_done_callback(lambda future: self._written(future, due.high_watermark))

    def _written(self, future: asyncio.Future[tuple[SnapshotId, int]], high_watermark: Callable[[], int]) -> None:
        self._writing = None
        if self._is_closed or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            # The log still has everything, so the node continues; the next commit that makes a snapshot due retries.
            logger.error("a snapshot of the metadata could not be written: %s", error)
            return
        identity, size = future.result()
        if identity < self._last:
            return  # the leader sent a newer one meanwhile
        self._last = identity
        self._store.snapshot_written(identity, size)
        logger.info("metadata: snapshot at %d", identity.offset)
        try:
            self._trim(high_watermark())
        except (KafkaError, OSError) as failure:
            logger.error("the metadata log could not be trimmed: %s", failure)

    def _trim(self, high_watermark: int) -> None:
        """Delete the log and the snapshots that the retained snapshots make unnecessary."""
        now_ms = self._now_ms()
        log = self._store.log
        log.roll(now_ms)
        paths, start = self._store.expired_snapshots(now_ms)
        log.advance_log_start(min(start, high_watermark))
        paths += log.delete_old_segments(now_ms, high_watermark)
        self._on_log_trimmed()
        if paths:
            self._removing = self._loop.run_in_executor(self._executor, self._store.remove_files, paths)
            self._removing.add_done_callback(_removed)

    @property
    def is_writing(self) -> bool:
        return self._due is not None or self._writing is not None

    @property
    def under_way(self) -> list[asyncio.Future[Any]]:
        running: tuple[asyncio.Future[Any] | None, ...] = (self._writing, self._removing)
        return [future for future in running if future is not None and not future.done()]

    def close(self) -> None:
        self._is_closed = True


def _removed(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.error("what a snapshot replaced could not be removed: %r", error)
