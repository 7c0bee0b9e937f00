"""Decides which progress of a session's queries is published, and when: pure, without Spark, brokers or a clock.

The input is the events of Spark's listener, the output is updates for the cluster. An update is the progress of one
query and the offsets it commits. While the cluster is slow or unreachable, only the newest update of a query waits. The
laws:

- Each query publishes at most one update a second, at least one every 10 s while it lives, and always its last one.
- Spark reports starts at once and everything else later, so a run may have been replaced when its end is reported:
  only the run of a query that started last is published.
- An update that could not be published is counted, and published again in its newest form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition
from penstock.spark.progress.query_progress import (
    ENDED,
    HEARTBEAT_MS,
    QueryProgress,
    SourceIdentity,
    after_batch,
    ended,
)

UPDATE_EVERY_MS = 1000
ENDED_QUERIES_MAX = 100  # ended queries whose last update waits for an unreachable cluster


class Group(NamedTuple):
    bootstrap: str
    name: str
    shared: bool
    """The source commits to it as well."""


Commits = dict[Group, dict[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    run_id: str
    bootstrap: str | None
    """The cluster to publish to; None if the query uses none that we know of."""
    progress: QueryProgress
    commits: Commits


@dataclass(slots=True)
class _Run:
    bootstrap: str | None
    sources: tuple[SourceIdentity, ...]
    progress: QueryProgress
    commits: Commits = field(default_factory=dict)
    changed: bool = True
    published_ms: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.progress.state in ENDED

    def due_ms(self) -> int:
        if self.published_ms is None:
            return 0
        if self.has_ended and self.changed and not self.progress.unpublished:
            return 0
        return self.published_ms + (UPDATE_EVERY_MS if self.changed else HEARTBEAT_MS)


class UpdateSchedule:
    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}  # by query id, the oldest first

    def started(self, progress: QueryProgress, bootstrap: str | None, sources: tuple[SourceIdentity, ...]) -> None:
        self._runs.pop(progress.query_id, None)
        self._runs[progress.query_id] = _Run(bootstrap, sources, progress)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Spark reported a batch (`StreamingQueryProgress.json`, parsed)."""
        run = self._run(progress["id"], progress["runId"])
        if run is None:
            return
        run.progress = after_batch(run.progress, progress, run.sources)
        run.commits = _commits(run)
        run.changed = True

    def idle(self, query_id: str, run_id: str) -> None:
        run = self._run(query_id, run_id)
        if run is not None and run.progress.state != "idle":
            run.progress = dataclasses.replace(run.progress, state="idle")
            run.changed = True

    def terminated(self, query_id: str, run_id: str, error: str | None) -> None:
        run = self._run(query_id, run_id)
        if run is not None and not run.has_ended:
            run.progress = ended(run.progress, error)
            run.changed = True
            self._forget_old()

    def all_terminated(self) -> None:
        """The program is ending, and its queries with it."""
        for query_id, run in list(self._runs.items()):
            self.terminated(query_id, run.progress.run_id, None)

    def due(self, now_ms: int, *, hurry: bool = False) -> list[ProgressUpdate]:
        """The updates that may be published now; with `hurry`, all that were not published."""
        return [
            ProgressUpdate(
                run.progress.run_id,
                run.bootstrap,
                dataclasses.replace(run.progress, heartbeat_ms=now_ms),
                dict(run.commits),
            )
            for run in self._runs.values()
            if run.due_ms() <= now_ms or (hurry and run.changed)
        ]

    def next_due_ms(self) -> int | None:
        return min((run.due_ms() for run in self._runs.values()), default=None)

    def published(self, update: ProgressUpdate, now_ms: int, *, succeeded: bool) -> None:
        """The result of publishing an update. Later events of the query belong to its next update."""
        run = self._run(update.progress.query_id, update.run_id)
        if run is None:
            return
        run.published_ms = now_ms
        if not succeeded:
            run.progress = dataclasses.replace(run.progress, unpublished=run.progress.unpublished + 1)
            run.changed = True
            return
        if run.commits == update.commits:
            run.commits = {}
        run.changed = dataclasses.replace(run.progress, heartbeat_ms=0) != dataclasses.replace(
            update.progress, heartbeat_ms=0
        )
        if run.has_ended and not run.changed:
            del self._runs[update.progress.query_id]

    def _run(self, query_id: str, run_id: str) -> _Run | None:
        run = self._runs.get(query_id)
        return run if run is not None and run.progress.run_id == run_id else None

    def _forget_old(self) -> None:
        silent = [query_id for query_id, run in self._runs.items() if run.has_ended]
        for query_id in silent[:-ENDED_QUERIES_MAX]:
            del self._runs[query_id]


def _commits(run: _Run) -> Commits:
    """A topic that two sources of a query read is committed at the offset of the slower one."""
    commits: Commits = {}
    for source, identity in zip(run.progress.sources, run.sources, strict=False):
        if identity.bootstrap is None or identity.group is None or source.offsets is None:
            continue
        group = commits.setdefault(Group(identity.bootstrap, identity.group, identity.shared), {})
        for topic, offsets in source.offsets.items():
            for partition, offset in offsets.items():
                where = TopicPartition(topic, int(partition))
                group[where] = min(offset, group.get(where, offset))
    return commits
