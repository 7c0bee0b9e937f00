"""The sampler: looks at the cluster again and again, for all tabs together.

A sample takes at most a tenth of the time between two of them, however large the cluster: on one of 10,000 topics they
are seconds apart. Without an open page, samples are rarer, and serve the history alone. Offsets are asked for once, and
the lag of every group follows from them; starts of logs and sizes change slowly and are asked for less often.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from penstock.client.errors import ClientError
from penstock.client.wire.admin.group_lag import lag_of
from penstock.client.wire.admin.group_members import WITH_OFFSETS
from penstock.client.wire.admin.topics import EARLIEST, LATEST
from penstock.console.observe.pipelines import PIPELINES, PipelineWords
from penstock.console.observe.share_groups import share_groups
from penstock.console.views.lag import EndTimes
from penstock.console.views.sample import Directory, GroupSeen, Sample, Traffic
from penstock.doctor.metrics_pages import Page, find_pages, read_pages
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.client.wire.admin import Admin
    from penstock.client.wire.admin.cluster import ClusterDescription
    from penstock.client.wire.admin.group_members import GroupDescription
    from penstock.console.observe.access import ClusterAccess

Found = TypeVar("Found")

WATCHED_S = 2.0
UNWATCHED_S = 10.0
SHARE = 10
GROUPS_MAX = 2_000
_GROUPS_AT_ONCE = 100
_SLOW_S = 15.0
_METRICS_S = 2.0

BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
REQUESTS = "kafka_network_requestmetrics_totaltime_seconds_count"


class Sampler:
    """Used by one thread at a time."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._number = 0
        self._urls: dict[int, str] = {}
        self._known: frozenset[int] = frozenset()
        self._end_times = EndTimes()
        self._starts: Mapping[TopicPartition, int] = {}
        self._sizes: Mapping[TopicPartition, Mapping[int, int]] = {}
        self._directories: tuple[Directory, ...] = ()
        self._slow_at = float("-inf")
        self._words = PipelineWords(access)

    def take(self) -> Sample:
        """ClientError or KafkaError if the cluster does not answer at all; the rest is in the sample's notes."""
        with self._access.admin() as admin:
            return self._take(admin)

    def _take(self, admin: Admin) -> Sample:
        cluster = admin.cluster.describe()
        topics = {topic.name: topic for topic in admin.topics.list(internal=True)}
        notes: list[str] = []
        led = [
            TopicPartition(topic.name, each.partition)
            for topic in topics.values()
            for each in topic.partitions
            if each.leader is not None
        ]
        at_ms = time.time_ns() // 1_000_000
        ends = self._ask(notes, "offsets", lambda: _offsets(admin, led, LATEST)) or {}
        if time.monotonic() - self._slow_at > _SLOW_S or (led and not self._starts):
            self._starts = self._ask(notes, "starts of logs", lambda: _offsets(admin, led, EARLIEST)) or self._starts
            self._ask(notes, "sizes", lambda: self._measure(admin))
            self._slow_at = time.monotonic()
        groups = self._ask(notes, "groups", lambda: self._groups(admin, ends, at_ms)) or {}
        has_pipelines = PIPELINES in topics
        reported = self._ask(notes, "pipelines", lambda: self._words.read(at_ms)) if has_pipelines else None
        pipelines, queries = reported or ({}, ())
        self._number += 1
        return Sample(
            number=self._number,
            at_ms=at_ms,
            cluster=cluster,
            topics=topics,
            ends=ends,
            starts=self._starts,
            sizes=self._sizes,
            directories=self._directories,
            groups=groups,
            traffic=self._traffic(admin, cluster),
            pipelines=pipelines,
            earlier_pipelines=self._words.earlier(at_ms, pipelines),
            queries=queries,
            notes=tuple(notes),
        )

    def _ask(self, notes: list[str], what: str, question: Callable[[], Found]) -> Found | None:
        try:
            return question()
        except (ClientError, KafkaError) as error:
            notes.append(f"{what}: {' '.join(str(error).split())}")
            return None

    def _measure(self, admin: Admin) -> None:
        sizes: dict[TopicPartition, dict[int, int]] = {}
        described = admin.log_dirs.describe()
        for directory in described:
            for replica in directory.replicas:
                if not replica.future:
                    by_broker = sizes.setdefault(TopicPartition(replica.topic, replica.partition), {})
                    by_broker[directory.broker_id] = replica.size
        self._sizes = sizes
        self._directories = tuple(
            Directory(each.broker_id, each.path, each.error, each.total_bytes, each.usable_bytes) for each in described
        )

    def _groups(self, admin: Admin, ends: Mapping[TopicPartition, int], at_ms: int) -> dict[str, GroupSeen]:
        names = [group.group_id for group in admin.groups.list(types=WITH_OFFSETS)][:GROUPS_MAX]
        found: dict[str, GroupSeen] = {}
        read: set[TopicPartition] = set()
        for first in range(0, len(names), _GROUPS_AT_ONCE):
            for group in _described(admin, names[first : first + _GROUPS_AT_ONCE]):
                committed = admin.groups.offsets(group.group_id)
                lags = tuple(lag_of(group, committed, ends))
                read.update(TopicPartition(each.topic, each.partition) for each in lags)
                found[group.group_id] = GroupSeen(group, lags)
        for seen in share_groups(admin, ends, GROUPS_MAX - len(found)):
            read.update(TopicPartition(each.topic, each.partition) for each in seen.lags)
            found[seen.description.group_id] = seen
        for partition in read & ends.keys():
            self._end_times.remember(partition, ends[partition], at_ms)
        self._end_times.keep_only(read)
        return {name: self._with_seconds(group, at_ms) for name, group in found.items()}

    def _with_seconds(self, group: GroupSeen, at_ms: int) -> GroupSeen:
        seconds = {}
        for each in group.lags:
            partition = TopicPartition(each.topic, each.partition)
            if each.committed is not None and each.end is not None:
                behind = self._end_times.seconds_behind(partition, each.committed, at_ms)
                if behind is not None:
                    seconds[partition] = behind
        return GroupSeen(group.description, group.lags, seconds)

    def _traffic(self, admin: Admin, cluster: ClusterDescription) -> dict[int, Traffic]:
        hosts = {broker.broker_id: broker.host for broker in cluster.brokers if not broker.fenced}
        if frozenset(hosts) != self._known:
            self._urls = find_pages(admin, hosts)
            self._known = frozenset(hosts)
        pages = read_pages(self._urls, _METRICS_S, self._access.options)
        return {broker_id: _traffic_of(page) for broker_id, page in pages.items()}


def interval_s(took_s: float, *, watched: bool, failed: bool = False) -> float:
    """The pause until the next sample. One that failed has read little, and says nothing about how long they take: the
    next attempt comes soon."""
    return max(WATCHED_S if watched else UNWATCHED_S, min(took_s, UNWATCHED_S) if failed else took_s * SHARE)


def _offsets(admin: Admin, partitions: list[TopicPartition], where: int) -> dict[TopicPartition, int]:
    return admin.topics.offsets(partitions, where) if partitions else {}


def _described(admin: Admin, names: list[str]) -> Iterable[GroupDescription]:
    """Describe groups; one that is deleted meanwhile is left out."""
    try:
        return admin.groups.describe(names)
    except KafkaError:
        return [group for name in names if (group := admin.groups.find(name)) is not None]


def _traffic_of(page: Page) -> Traffic:
    return Traffic(
        page.total(BYTES_IN),
        page.total(BYTES_OUT),
        page.total(REQUESTS),
        int(page.total("kafka_server_socketservermetrics_connection_count")),
        int(page.total("process_resident_memory_bytes")),
    )
