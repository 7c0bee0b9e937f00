"""Metrics that every node has: requests, connections, its part in the quorum, its process."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock import __version__
from penstock.broker.authentication.gate import AuthenticationCounts
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metrics import families as f
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.exposition import Collected, Sample
from penstock.broker.net.listeners import Listeners
from penstock.broker.net.throttling import Throttling
from penstock.broker.partitions.audit_topic import AuditTopic
from penstock.io.clock import Clock
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from penstock.settings.live import LiveSettings

_ROLES: Final[dict[type[Role], str]] = {
    Leader: "leader",
    Follower: "follower",
    Candidate: "candidate",
    Prospective: "prospective",
    Unattached: "unattached",
    Resigned: "resigned",
}
OBSERVER: Final = "observer"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSources:
    clock: Clock
    settings: LiveSettings
    counters: Counters
    listeners: Listeners
    authentications: Mapping[str, AuthenticationCounts]
    quorum: MetadataQuorum
    throttling: Throttling
    audit_topic: AuditTopic | None


def requests(sources: NodeSources) -> Iterator[Collected]:
    yield f.LATENCY, [((each.name,), each) for each in sources.counters.requests.all() if each.requests]
    parked: Counter[str] = Counter({"Produce": 0, "FetchConsumer": 0, "FetchFollower": 0})
    for listener in sources.listeners.all:
        for connection in listener.connections:
            parked.update(connection.waiting)
    yield f.PARKED, [((name,), count) for name, count in parked.items()]
    yield f.CONNECTIONS, [((each.name,), len(each.connections)) for each in sources.listeners.all]
    yield f.CONNECTIONS_OPENED, [((), sources.listeners.limits.opened_ever)]
    yield f.CONNECTIONS_REFUSED, [((), sources.listeners.limits.refused_ever)]
    yield (
        f.AUTHENTICATIONS,
        [
            ((name, outcome), count)
            for name, counts in sources.authentications.items()
            for outcome, count in (("succeeded", counts.succeeded), ("failed", counts.failed))
        ],
    )


def quorum(sources: NodeSources) -> Iterator[Collected]:
    quorum = sources.quorum
    described = quorum.describe()
    role = _ROLES[type(quorum.role)]
    if role == "follower" and not quorum.is_voter:
        role = OBSERVER
    yield f.RAFT_STATE, [((name,), int(name == role)) for name in (*_ROLES.values(), OBSERVER)]
    yield f.RAFT_LEADER, [((), quorum.controller_id)]
    yield f.RAFT_EPOCH, [((), quorum.epoch)]
    yield f.RAFT_HIGH_WATERMARK, [((), quorum.high_watermark)]
    yield f.RAFT_LOG_END, [((), quorum.log_end_offset)]
    yield f.METADATA_LAG, [((), max(0, quorum.high_watermark - sources.quorum.image.offset - 1))]
    lags: list[Sample] = [
        ((str(status.key.node_id), kind), max(0, described.log_end_offset - max(0, status.log_end_offset)))
        for kind, replicas in (("voter", described.voter_status), (OBSERVER, described.observer_status))
        for status in replicas
        if status.key.node_id != sources.settings.now.node_id
    ]
    if lags:
        yield f.RAFT_LAG, lags


def controller(sources: NodeSources) -> Iterator[Collected]:
    if not sources.settings.now.is_controller:
        return
    image, index = sources.quorum.image, sources.quorum.controller.index
    fenced = sum(broker.fenced for broker in image.brokers.values())
    yield f.ACTIVE_CONTROLLER, [((), int(sources.quorum.is_active))]
    yield f.OFFLINE_PARTITIONS, [((), len(index.leaderless))]
    yield f.NOT_PREFERRED, [((), len(index.not_preferred))]
    yield f.GLOBAL_TOPICS, [((), len(image.topics))]
    yield f.GLOBAL_PARTITIONS, [((), sum(len(topic.partitions) for topic in image.topics.ids.values()))]
    yield f.ACTIVE_BROKERS, [((), len(image.brokers) - fenced)]
    yield f.FENCED_BROKERS, [((), fenced)]


def process(sources: NodeSources) -> Iterator[Collected]:
    yield f.LOOP_LAG, [((), sources.counters.loop_lag)]
    roles = "+".join(sources.settings.now.process_roles)
    yield f.BUILD, [((__version__, str(sources.settings.now.node_id), roles), 1)]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield f.CPU, [((), usage.ru_utime + usage.ru_stime)]
    yield f.MAX_FILES, [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
    yield f.CLOCK, [((), sources.clock.now_ms() / 1000)]
    yield f.SCRAPES, [((), sources.counters.scrapes)]
    if sources.audit_topic is not None:
        yield f.AUDIT_DROPPED, [((), sources.audit_topic.dropped)]
    yield f.LEFT_OUT, [((), sources.counters.series_left_out)]
    if os.path.exists("/proc/self/stat"):
        yield from _from_proc()


def _from_proc() -> Iterator[Collected]:
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # fields from the third on, after the name
    virtual, resident = int(fields[20]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    started_ticks = int(fields[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    yield f.VIRTUAL, [((), virtual)]
    yield f.RESIDENT, [((), resident)]
    yield f.OPEN_FILES, [((), len(os.listdir("/proc/self/fd")) - 1)]
    yield f.START_TIME, [((), round(time.time() - since_boot + started_ticks / os.sysconf("SC_CLK_TCK"), 2))]
