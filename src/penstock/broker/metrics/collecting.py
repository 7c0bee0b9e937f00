"""One scrape: everything that a node can tell, as text, without holding the event loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import Final

from penstock.broker.metrics import of_brokers, of_coordinators, of_nodes
from penstock.broker.metrics.exposition import Collected, lines_of
from penstock.broker.metrics.of_brokers import BrokerSources
from penstock.broker.metrics.of_coordinators import CoordinatorSources
from penstock.broker.metrics.of_nodes import NodeSources
from penstock.broker.net.latency import now_ns
from penstock.model.ids import TopicPartition

SLICE_NS: Final = 3_000_000
LINES_AT_ONCE: Final = 64  # between two looks at the clock


async def collect(
    node: NodeSources, broker: BrokerSources | None = None, coordinators: CoordinatorSources | None = None
) -> bytes:
    """`broker` and `coordinators`: of a broker that serves clients."""
    node.counters.scrapes += 1
    node.counters.series_left_out = 0
    parts: list[str] = []
    began = now_ns()
    for family, samples in await _collectors(node, broker, coordinators):
        for number, line in enumerate(lines_of(family, samples)):
            parts.append(line)
            if not number % LINES_AT_ONCE and now_ns() - began > SLICE_NS:
                await asyncio.sleep(0)
                began = now_ns()
    return "".join(parts).encode()


async def _collectors(
    node: NodeSources, broker: BrokerSources | None, coordinators: CoordinatorSources | None
) -> Iterator[Collected]:
    of_all = chain(of_nodes.requests(node), of_nodes.quorum(node), of_nodes.controller(node))
    if broker is None or coordinators is None:  # a controller, or a broker that is starting
        return chain(of_all, of_nodes.process(node))
    committed = of_coordinators.committed_offsets(coordinators)
    partitions = {TopicPartition(topic, index) for _, topic, index, _ in committed}
    ends = await of_coordinators.ends_of(coordinators, partitions)
    return chain(
        of_brokers.traffic(broker),
        of_all,
        of_brokers.replicas(broker),
        of_brokers.logs(broker),
        of_coordinators.groups(coordinators, committed, ends),
        of_coordinators.transactions(coordinators),
        of_coordinators.coordinators(coordinators),
        of_nodes.process(node),  # last: it says how much was left out
    )
