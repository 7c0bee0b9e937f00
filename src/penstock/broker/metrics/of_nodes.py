"""Numbers that every node has: requests, connections, its part in the quorum, its process."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.broker.metrics import families as f
from penstock.broker.metrics.exposition import Collected, Sample
from penstock.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached

if TYPE_CHECKING:
    from penstock.broker.node import Node

_ROLES: Final[dict[type[Role], str]] = {
    Leader: "leader",
    Follower: "follower",
    Candidate: "candidate",
    Prospective: "prospective",
    Unattached: "unattached",
    Resigned: "resigned",
}
OBSERVER: Final = "observer"


def requests(node: Node) -> Iterator[Collected]:
    yield f.LATENCY, [((each.name,), each) for each in node.metrics.requests.all() if each.requests]
    parked: Counter[str] = Counter({"Produce": 0, "FetchConsumer": 0, "FetchFollower": 0})
    for listener in node.listeners.all:
        for connection in listener.connections:
            parked.update(connection.waiting)
    yield f.PARKED, [((name,), count) for name, count in parked.items()]
    yield f.CONNECTIONS, [((each.name,), len(each.connections)) for each in node.listeners.all]
    yield f.CONNECTIONS_OPENED, [((), node.limits.opened_ever)]
    yield f.CONNECTIONS_REFUSED, [((), node.limits.refused_ever)]


def quorum(node: Node) -> Iterator[Collected]:
    quorum = node.quorum
    described = quorum.describe()
    role = _ROLES[type(quorum.role)]
    if role == "follower" and not quorum.is_voter:
        role = OBSERVER
    yield f.RAFT_STATE, [((name,), int(name == role)) for name in (*_ROLES.values(), OBSERVER)]
    yield f.RAFT_LEADER, [((), quorum.controller_id)]
    yield f.RAFT_EPOCH, [((), quorum.epoch)]
    yield f.RAFT_HIGH_WATERMARK, [((), quorum.high_watermark)]
    yield f.RAFT_LOG_END, [((), quorum.log_end_offset)]
    yield f.METADATA_LAG, [((), max(0, quorum.high_watermark - node.image.offset - 1))]
    lags: list[Sample] = [
        ((str(status.key.node_id), kind), max(0, described.log_end_offset - max(0, status.log_end_offset)))
        for kind, replicas in (("voter", described.voter_status), (OBSERVER, described.observer_status))
        for status in replicas
        if status.key.node_id != node.settings.node_id
    ]
    if lags:
        yield f.RAFT_LAG, lags


def controller(node: Node) -> Iterator[Collected]:
    if not node.settings.is_controller:
        return
    image, index = node.image, node.quorum.controller.index
    fenced = sum(broker.fenced for broker in image.brokers.values())
    yield f.ACTIVE_CONTROLLER, [((), int(node.quorum.is_active))]
    yield f.OFFLINE_PARTITIONS, [((), len(index.leaderless))]
    yield f.NOT_PREFERRED, [((), len(index.not_preferred))]
    yield f.GLOBAL_TOPICS, [((), len(image.topics))]
    yield f.GLOBAL_PARTITIONS, [((), sum(len(topic.partitions) for topic in image.topics.ids.values()))]
    yield f.ACTIVE_BROKERS, [((), len(image.brokers) - fenced)]
    yield f.FENCED_BROKERS, [((), fenced)]


def process(node: Node) -> Iterator[Collected]:
    yield f.LOOP_LAG, [((), node.metrics.loop_lag)]
    roles = "+".join(node.settings.process_roles)
    yield f.BUILD, [((__version__, str(node.settings.node_id), roles), 1)]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield f.CPU, [((), usage.ru_utime + usage.ru_stime)]
    yield f.MAX_FILES, [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])]
    yield f.CLOCK, [((), node.clock.now_ms() / 1000)]
    yield f.SCRAPES, [((), node.metrics.scrapes)]
    yield f.LEFT_OUT, [((), node.metrics.series_left_out)]
    if os.path.exists("/proc/self/stat"):
        yield from _from_proc()


def _from_proc() -> Iterator[Collected]:
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # from the third on, after the name
    virtual, resident = int(fields[20]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    started_ticks = int(fields[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    yield f.VIRTUAL, [((), virtual)]
    yield f.RESIDENT, [((), resident)]
    yield f.OPEN_FILES, [((), len(os.listdir("/proc/self/fd")) - 1)]
    yield f.START_TIME, [((), round(time.time() - since_boot + started_ticks / os.sysconf("SC_CLK_TCK"), 2))]
