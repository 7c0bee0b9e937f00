"""What one user sees of the cluster: connections, the last samples, and the task that takes them.

Without a sign-in there is one workspace for everybody. With it, each user has one, made of clients that log in as that
user: so the cluster's own ACLs decide what a page shows and what a form may do. All tabs of a user share it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.client.errors import ClientError
from penstock.console.history import History
from penstock.console.observe.access import ClusterAccess
from penstock.console.observe.prometheus import PrometheusHistory
from penstock.console.observe.sampler import Sampler, interval_s
from penstock.console.views.charts import Point
from penstock.console.views.events import Event, Happening, happenings
from penstock.console.views.overview import records_rate
from penstock.console.views.sample import Sample, Seen, end_totals
from penstock.doctor.diagnosis import diagnose
from penstock.doctor.findings import Finding
from penstock.doctor.observing import Patience, observe
from penstock.model.errors import KafkaError

logger = logging.getLogger("penstock.console")

DOCTOR_EVERY_S = 60.0
_PARTITIONS_IN_HISTORY = 64

Result = TypeVar("Result")
Prometheus = tuple[str, str]
"""Its URL, and label matchers."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: tuple[Finding, ...]
    at_ms: int
    unobserved: tuple[str, ...]


class Workspace:
    def __init__(
        self, access: ClusterAccess, history: History, user: str | None = None, prometheus: Prometheus | None = None
    ) -> None:
        self.access = access
        self._prometheus = None if prometheus is None else PrometheusHistory(*prometheus, self._tell_from_thread)
        self._loop = asyncio.get_running_loop()
        self.history = history
        self.user = user
        self.seen = Seen()
        self.diagnosis: Diagnosis | None = None
        self.version = 0
        """Counts what a page could show: samples, and failures to take one."""
        self._changed = asyncio.Event()
        self._sampler = Sampler(access)
        self._is_taking = asyncio.Lock()
        self._waiting = 0
        self._watchers = 0
        self._somebody_came = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._examining: asyncio.Task[None] | None = None
        self._examined_at = float("-inf")
        self._closing = False
        self._compared: Sample | None = None
        """The last sample whose changes are in the events."""
        self._is_silent = False
        """The cluster does not answer, and an event says so."""

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._sample()))

    async def close(self) -> None:
        """Also ends what threads do for this user at this moment."""
        self._closing = True
        self.access.close()
        self._tell()
        pending = [*self._tasks, *([self._examining] if self._examining else [])]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    @property
    def cluster_id(self) -> str:
        return "" if self.seen.now is None else self.seen.now.cluster.cluster_id or ""

    def over_time(
        self, kind: str, names: list[str], begin_ms: int, end_ms: int, *, peak: bool = False
    ) -> dict[str, list[Point]]:
        """Series from Prometheus, where one is named and has them; else those of the console itself."""
        theirs = {} if self._prometheus is None else self._prometheus.read_many(kind, names, begin_ms, end_ms)
        found = {name: theirs[name] for name in names if theirs.get(name)}
        missing = [name for name in names if name not in found]
        own = self.history.read_many(self.cluster_id, kind, missing, begin_ms, peak=peak) if missing else {}
        return {name: found.get(name) or own[name] for name in names if name in found or name in own}

    @property
    def history_problem(self) -> str | None:
        return None if self._prometheus is None else self._prometheus.problem

    def _tell_from_thread(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the console ends
            self._loop.call_soon_threadsafe(self._tell)

    async def first(self, patience_s: float) -> Seen:
        """The last samples; waits for the first one, or for the reason why there is none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not self.version and not self._closing:
                    await self._changed.wait()
        return self.seen

    async def fresh(self) -> Seen:
        """A sample that begins after now: a page that follows a change shows it."""
        if self._is_taking.locked() and self._waiting:
            return self.seen  # another request asks for the same
        self._waiting += 1
        try:
            with contextlib.suppress(ClientError, KafkaError):
                async with self._is_taking:
                    self._take_over(await asyncio.to_thread(self.access.run, self._sampler.take), keep=True)
        finally:
            self._waiting -= 1
        return self.seen

    async def changes(self) -> AsyncIterator[int]:
        """Yields when there is something new to show; the samples are frequent while anybody waits here."""
        self._watchers += 1
        if self._watchers == 1:
            self._somebody_came.set()
        try:
            seen = self.version
            while not self._closing:
                if self.version == seen:
                    await self._changed.wait()
                    continue
                seen = self.version
                yield seen
        finally:
            self._watchers -= 1

    async def ask(self, question: Callable[[ClusterAccess], Result]) -> Result:
        """A question to the cluster, in a thread."""
        return await asyncio.to_thread(self.access.run, question, self.access)

    def examine(self) -> None:
        """Let the doctor look, if the last look is old."""
        due = time.monotonic() - self._examined_at > DOCTOR_EVERY_S
        if due and (self._examining is None or self._examining.done()) and not self._closing:
            self._examined_at = time.monotonic()
            self._examining = asyncio.create_task(self._examine())

    async def _examine(self) -> None:
        try:
            access = self.access
            seen = await asyncio.to_thread(
                access.run, observe, access.bootstrap, Patience(watch_s=2.0), dict(access.options)
            )
            findings = tuple(diagnose(seen))
            self.diagnosis = Diagnosis(findings, time.time_ns() // 1_000_000, tuple(seen.unobserved))
        except (ClientError, KafkaError) as error:
            self.diagnosis = Diagnosis((), time.time_ns() // 1_000_000, (str(error),))
        self._tell()

    async def _sample(self) -> None:
        while not self._closing:
            began = time.monotonic()
            try:
                async with self._is_taking:
                    self._take_over(await asyncio.to_thread(self.access.run, self._sampler.take))
            except (ClientError, KafkaError) as error:
                self.seen = replace(self.seen, problem=" ".join(str(error).split()))
                if not self._is_silent and self._compared is not None:
                    self._is_silent = True
                    await asyncio.to_thread(self._happened, Happening("cluster", "the cluster does not answer", "bad"))
                self._tell()
            except Exception:
                logger.exception("a sample failed")
                raise
            if self.seen.problem is None:
                await asyncio.to_thread(self._remember)
            took = time.monotonic() - began
            # A page that is opened meanwhile ends the long pause.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    interval_s(took, watched=self._watchers > 0, failed=self.seen.problem is not None)
                ):
                    await self._somebody_came.wait()
                    self._somebody_came.clear()

    def _take_over(self, sample: Sample, *, keep: bool = False) -> None:
        """`keep`: rates go on from the sample before, because this one follows too soon after the last."""
        self.seen = Seen(sample, self.seen.before if keep else self.seen.now)
        self._tell()

    def _tell(self) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _happened(self, *happenings: Happening) -> None:
        self.history.add_events(self.cluster_id, self.user, time.time_ns() // 1_000_000, happenings)

    def events(self, limit: int) -> list[Event]:
        """The newest first."""
        return self.history.events(self.cluster_id, self.user, limit)

    def _compare(self, now: Sample) -> None:
        found = [] if self._compared is None else happenings(self._compared, now)
        if self._is_silent:
            self._is_silent = False
            found.insert(0, Happening("cluster", "the cluster answers again", "good"))
        self._compared = now
        if found:
            self._happened(*found)

    def _remember(self) -> None:
        seen = self.seen
        if seen.now is None:
            return
        self._compare(seen.now)
        values: dict[tuple[str, str], float] = {}
        rate = records_rate(seen)
        if rate is not None:
            values["records", ""] = rate
        for name in ("bytes_in", "bytes_out"):
            before, now = (
                sum(getattr(each, name) for each in sample.traffic.values())
                if sample is not None and sample.traffic
                else None
                for sample in (seen.before, seen.now)
            )
            total = seen.rate(before, now)
            if total is not None:
                values[name, ""] = total
        for group_id, group in seen.now.groups.items():
            values["lag", group_id] = group.lag
            if group.seconds_behind is not None:
                values["lag-seconds", group_id] = group.seconds_behind
            for each in group.lags if len(group.lags) <= _PARTITIONS_IN_HISTORY else ():
                if each.lag is not None:
                    values["lag-partition", f"{group_id}\0{each.topic}-{each.partition}"] = each.lag
        earlier = {} if seen.before is None else end_totals(seen.before)
        for topic, end in end_totals(seen.now).items():
            written = seen.rate(earlier.get(topic), end)
            if written:
                values["written", topic] = written
        self.history.add(self.cluster_id, seen.now.at_ms, values)
