"""One scrape: everything that a node can tell, as text, without holding the event loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from penstock.broker.metrics import of_brokers, of_coordinators, of_nodes
from penstock.broker.metrics.exposition import Collected, lines_of
from penstock.broker.net.latency import now_ns
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.broker.node import Node

SLICE_NS: Final = 3_000_000
LINES_AT_ONCE: Final = 64  # between two looks at the clock


async def collect(node: Node) -> bytes:
    node.metrics.scrapes += 1
    node.metrics.series_left_out = 0
    parts: list[str] = []
    began = now_ns()
    for family, samples in await _collectors(node):
        for number, line in enumerate(lines_of(family, samples)):
            parts.append(line)
            if not number % LINES_AT_ONCE and now_ns() - began > SLICE_NS:
                await asyncio.sleep(0)
                began = now_ns()
    return "".join(parts).encode()


async def _collectors(node: Node) -> Iterator[Collected]:
    of_all = chain(of_nodes.requests(node), of_nodes.quorum(node), of_nodes.controller(node))
    if not node.is_serving:  # a controller, or a broker that is starting
        return chain(of_all, of_nodes.process(node))
    committed = of_coordinators.committed_offsets(node)
    ends = await of_coordinators.ends_of(node, {TopicPartition(topic, index) for _, topic, index, _ in committed})
    return chain(
        of_brokers.traffic(node),
        of_all,
        of_brokers.replicas(node),
        of_brokers.logs(node),
        of_coordinators.groups(node, committed, ends),
        of_coordinators.transactions(node),
        of_coordinators.coordinators(node),
        of_nodes.process(node),  # last: it says how much was left out
    )
