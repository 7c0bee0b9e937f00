"""`python -m bench.offsets`: how soon committed offsets can be asked for again when their coordinator is killed.

Three brokers; a hundred thousand offsets, of groups that all belong to one partition of `__consumer_offsets`, which is
the worst case: only one broker has to load them, and no group goes on before it has all of them. The broker that
coordinates is killed. What counts is the time until OffsetFetch is answered again, how much of it was loading, and how
long others had to wait for the event loop meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import threading
import time
from itertools import count, islice
from statistics import median

from rich.console import Console

from bench.subjects import keep_bytecode
from penstock.broker.coordinators.hashing import partition_for
from penstock.client.errors import ClientError, raise_for
from penstock.client.wire.connection import Connection
from penstock.model.errors import ErrorCode
from penstock.model.topics import CONSUMER_OFFSETS
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode

TOPIC = "bench-offsets"
OFFSETS_PARTITIONS = 50
GROUP_PREFIX = "bench-offsets"
COMMIT_VERSION = 9
FETCH_VERSION = 9
TIMEOUT_S = 60.0
_RETRIABLE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


def groups_of_one_partition(number: int) -> list[str]:
    names = (f"{GROUP_PREFIX}-{each}" for each in count())
    return list(islice((name for name in names if partition_for(name, OFFSETS_PARTITIONS) == 0), number))


def coordinator_of(cluster: RunningCluster, group: str) -> RunningNode:
    """After waiting for one."""
    found: list[RunningNode] = []

    def known() -> bool:
        for broker in cluster.brokers:
            if broker.running:
                with Connection(broker.host, broker.port, timeout=5.0) as connection:
                    answer = connection.request(
                        FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse
                    )
                (coordinator,) = answer.coordinators
                raise_for(coordinator.error_code, None, "FindCoordinator")
                found[:] = [cluster.broker(coordinator.node_id)]
                return found[0].running
        return False

    cluster.wait_until(known, f"the coordinator of {group}", TIMEOUT_S)
    return found[0]


def commit_all(cluster: RunningCluster, groups: list[str], partitions: int) -> None:
    node = coordinator_of(cluster, groups[0])
    with Connection(node.host, node.port, timeout=TIMEOUT_S) as connection:
        for group in groups:
            request = OffsetCommitRequest(
                group_id=group,
                topics=[
                    OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            OffsetCommitRequestPartition(partition_index=index, committed_offset=index + 1)
                            for index in range(partitions)
                        ],
                    )
                ],
            )
            _commit(connection, request)


def _commit(connection: Connection, request: OffsetCommitRequest) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        response = connection.request(request, OffsetCommitResponse, newest=COMMIT_VERSION)
        codes = {ErrorCode(part.error_code) for topic in response.topics for part in topic.partitions}
        if codes == {ErrorCode.NONE}:
            return
        if not codes <= _RETRIABLE or time.monotonic() > deadline:
            raise RuntimeError(f"OffsetCommit: {', '.join(code.name for code in codes)}")
        time.sleep(0.05)


def fetch(node: RunningNode, group: str) -> int | None:
    """How many offsets there are; None while there is no coordinator."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    try:
        with Connection(node.host, node.port, timeout=5.0) as connection:
            response = connection.request(request, OffsetFetchResponse, newest=FETCH_VERSION)
    except ClientError:
        return None
    (answer,) = response.groups
    if answer.error_code in _RETRIABLE:
        return None
    raise_for(answer.error_code, None, "OffsetFetch")
    return sum(len(topic.partitions) for topic in answer.topics)


class Pings(threading.Thread):
    """Small requests to a broker, one after the other: the longest says how long its event loop was held."""

    def __init__(self, node: RunningNode) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._stopping = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        with Connection(self._node.host, self._node.port, timeout=TIMEOUT_S) as connection:
            while not self._stopping.is_set():
                began = time.perf_counter()
                connection.request(ApiVersionsRequest(), ApiVersionsResponse)
                self.longest = max(self.longest, time.perf_counter() - began)
                time.sleep(0.001)

    def stop(self) -> float:
        self._stopping.set()
        self.join()
        return self.longest


def one_round(cluster: RunningCluster, group: str, partitions: int) -> dict[str, float]:
    killed = coordinator_of(cluster, group)
    others = [broker for broker in cluster.brokers if broker is not killed]
    logs = {broker.node_id: len(broker.log_text()) for broker in others}
    pings = [Pings(broker) for broker in others]
    for each in pings:
        each.start()
    began = time.perf_counter()
    killed.kill()
    found: list[RunningNode] = []
    deadline = began + TIMEOUT_S
    while not found:
        found = [broker for broker in others if fetch(broker, group) == partitions]
        if time.perf_counter() > deadline:
            raise TimeoutError("no coordinator has the offsets")
        time.sleep(0.001)
    seconds = time.perf_counter() - began
    longest = max(each.stop() for each in pings)
    text = found[0].log_text()[logs[found[0].node_id] :]
    loaded = re.search(rf"{CONSUMER_OFFSETS}-0: loaded (\d+) records in (\d+) ms", text)
    killed.start()
    cluster.wait_for_isr(CONSUMER_OFFSETS)
    return {
        "seconds": seconds,
        "records": float(loaded[1]) if loaded else 0.0,
        "loading_ms": float(loaded[2]) if loaded else 0.0,
        "longest_ping_ms": longest * 1e3,
    }


def main() -> None:
    arguments = _arguments()
    console = Console()
    groups = groups_of_one_partition(arguments.offsets // arguments.partitions)
    with tempfile.TemporaryDirectory(prefix="penstock-offsets-", dir=arguments.directory) as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with start_cluster(os.path.join(directory, "cluster")) as cluster:
            cluster.create_topic(TOPIC, arguments.partitions)
            coordinator_of(cluster, groups[0])
            cluster.wait_for_isr(CONSUMER_OFFSETS)
            began = time.perf_counter()
            commit_all(cluster, groups, arguments.partitions)
            committed_s = time.perf_counter() - began
            rounds = [one_round(cluster, groups[-1], arguments.partitions) for _ in range(arguments.rounds)]
    console.print(f"{arguments.offsets:,} offsets of {len(groups):,} groups committed in {committed_s:.1f} s")
    for title, name, unit in (
        ("killed until OffsetFetch is answered", "seconds", "s"),
        ("loaded", "records", "records"),
        ("of that loading", "loading_ms", "ms"),
        ("longest wait of others meanwhile", "longest_ping_ms", "ms"),
    ):
        values = [each[name] for each in rounds]
        console.print(f"{title}: median {median(values):,.4g} {unit} ({min(values):,.4g} to {max(values):,.4g})")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rounds, file, indent=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.offsets", description=__doc__)
    parser.add_argument("--offsets", type=int, default=100_000, metavar="N", help="(default: 100000)")
    parser.add_argument("--partitions", type=int, default=100, metavar="N", help="of the topic (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="kills (default: 3)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--directory", metavar="DIR", help="where the data goes (default: the system's temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
