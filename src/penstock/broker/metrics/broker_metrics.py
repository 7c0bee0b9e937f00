"""Metrics of a broker: topics, partitions, replicas and log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.broker.metrics import families as f
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.exposition import Collected, Sample, labels_text
from penstock.broker.metrics.families import Family
from penstock.broker.partitions.fetch_sessions import FetchSessions
from penstock.broker.partitions.follower_sessions import FollowerSessions
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.storage.storage import Storage
from penstock.broker.telemetry import ClientTelemetry
from penstock.io.files import FileSystem
from penstock.log.log import Log
from penstock.settings.live import LiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSources:
    files: FileSystem
    settings: LiveSettings
    counters: Counters
    replicas: Replicas
    storage: Storage
    fetch_sessions: FetchSessions
    follower_sessions: FollowerSessions
    telemetry: ClientTelemetry


def traffic(sources: BrokerSources) -> Iterator[Collected]:
    totals: dict[str, list[int]] = {}
    for replica in list(sources.replicas):
        total = totals.setdefault(replica.topic_partition.topic, [0, 0, 0, 0])
        total[0] += replica.bytes_in
        total[1] += replica.bytes_out
        total[2] += replica.messages_in
        total[3] += replica.messages_out
    for position, family in enumerate((f.BYTES_IN, f.BYTES_OUT, f.MESSAGES_IN, f.MESSAGES_OUT)):
        yield family, [((topic,), total[position]) for topic, total in totals.items()]
    yield f.REPLICATION_BYTES_IN, [((), sources.counters.replication.bytes_in)]
    yield f.REPLICATION_BYTES_OUT, [((), sources.counters.replication.bytes_out)]
    sessions = len(sources.fetch_sessions) + len(sources.follower_sessions)
    yield f.FETCH_SESSIONS, [((), sessions)]


def replicas(sources: BrokerSources) -> Iterator[Collected]:
    held = list(sources.replicas)
    leading = under_replicated = under_min_isr = reassigning = 0
    behind: dict[int, int] = {}
    for replica in held:
        leader, partition = replica.leader, replica.partition
        if leader is None or partition is None:
            continue
        leading += 1
        # A partition that is being reassigned has more replicas than its target.
        wanted = len(partition.replicas) - len(partition.adding_replicas)
        under_replicated += len(leader.isr) < wanted
        under_min_isr += not leader.has_enough_replicas
        reassigning += partition.reassigning
        for broker_id, follower in leader.followers.items():
            lacks = max(0, leader.log_end - max(0, follower.log_end))
            behind[broker_id] = max(behind.get(broker_id, 0), lacks)
    yield f.PARTITIONS, [((), len(held))]
    yield f.LEADERS, [((), leading)]
    yield f.UNDER_REPLICATED, [((), under_replicated)]
    yield f.UNDER_MIN_ISR, [((), under_min_isr)]
    yield f.REASSIGNING, [((), reassigning)]
    yield f.ISR_SHRINKS, [((), sources.counters.replication.isr_shrinks)]
    yield f.ISR_EXPANDS, [((), sources.counters.replication.isr_expands)]
    yield f.FOLLOWER_LAG, [((str(broker_id),), lag) for broker_id, lag in sorted(behind.items())]


def logs(sources: BrokerSources) -> Iterator[Collected]:
    held = list(sources.replicas)
    named = held[: sources.settings.now.penstock_metrics_max_series]
    sources.counters.series_left_out += len(held) - len(named)
    facts: tuple[tuple[Family, Callable[[Log], int]], ...] = (
        (f.LOG_SIZE, lambda log: log.size),
        (f.LOG_SEGMENTS, lambda log: len(log.segments)),
        (f.LOG_START, lambda log: log.log_start_offset),
        (f.LOG_END, lambda log: log.log_end_offset),
    )
    texts: list[str] = []
    for family, fact in facts:
        yield family, _by_partition(named, texts, fact)
    free: list[Sample] = []
    total: list[Sample] = []
    for directory in sources.storage.directories:
        try:
            volume = sources.files.total_bytes(directory.path), sources.files.free_bytes(directory.path)
        except OSError:  # the disk is gone; the next write will detect it
            continue
        total.append(((directory.path,), volume[0]))
        free.append(((directory.path,), volume[1]))
    yield f.DIRECTORY_TOTAL, total
    yield f.DIRECTORY_FREE, free
    offline = sources.storage.log_directories.offline
    yield f.OFFLINE_DIRECTORIES, [((), len(offline))]
    yield f.DIRECTORY_OFFLINE, [((path,), int(path in offline)) for path in sources.settings.now.log_directories]


def _by_partition(named: list[Replica], texts: list[str], fact: Callable[[Log], int]) -> Iterator[Sample]:
    """`texts`: the formatted labels, shared by all families after the first."""
    for number, replica in enumerate(named):
        if number == len(texts):
            topic, partition = replica.topic_partition
            texts.append(labels_text(f.LOG_SIZE.labels, (topic, str(partition))))
        yield texts[number], fact(replica.log)
