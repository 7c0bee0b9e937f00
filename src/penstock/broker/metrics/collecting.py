"""Collects one scrape: all metrics of a node as text, without holding the event loop for long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import Final

from penstock.broker.metrics import (
    broker_metrics,
    client_metrics,
    coordinator_metrics,
    node_metrics,
    quota_metrics,
    share_metrics,
)
from penstock.broker.metrics.broker_metrics import BrokerSources
from penstock.broker.metrics.coordinator_metrics import CoordinatorSources
from penstock.broker.metrics.exposition import Collected, lines_of
from penstock.broker.metrics.node_metrics import NodeSources
from penstock.broker.metrics.share_metrics import ShareSources
from penstock.broker.net.latency import now_ns
from penstock.model.ids import TopicPartition

SLICE_NS: Final = 3_000_000
LINES_AT_ONCE: Final = 64  # between two checks of the clock


async def collect(
    node: NodeSources,
    broker: BrokerSources | None = None,
    coordinators: CoordinatorSources | None = None,
    shares: ShareSources | None = None,
) -> bytes:
    """`broker`, `coordinators` and `shares`: only for a broker that serves clients."""
    node.counters.scrapes += 1
    node.counters.series_left_out = 0
    parts: list[str] = []
    began = now_ns()
    for family, samples in await _collectors(node, broker, coordinators, shares):
        for number, line in enumerate(lines_of(family, samples)):
            parts.append(line)
            if not number % LINES_AT_ONCE and now_ns() - began > SLICE_NS:
                await asyncio.sleep(0)
                began = now_ns()
    return "".join(parts).encode()


async def _collectors(
    node: NodeSources,
    broker: BrokerSources | None,
    coordinators: CoordinatorSources | None,
    shares: ShareSources | None,
) -> Iterator[Collected]:
    of_all = chain(
        node_metrics.requests(node),
        quota_metrics.quotas(node),
        node_metrics.quorum(node),
        node_metrics.controller(node),
    )
    if broker is None or coordinators is None or shares is None:  # a controller, or a broker that is starting
        return chain(of_all, node_metrics.process(node))
    committed = coordinator_metrics.committed_offsets(coordinators)
    partitions = {TopicPartition(topic, index) for _, topic, index, _ in committed}
    ends, share_offsets = await asyncio.gather(
        coordinator_metrics.ends_of(coordinators, partitions), share_metrics.offsets_of(shares)
    )
    return chain(
        broker_metrics.traffic(broker),
        of_all,
        broker_metrics.replicas(broker),
        broker_metrics.logs(broker),
        coordinator_metrics.groups(coordinators, committed, ends),
        share_metrics.lags(shares, share_offsets),
        share_metrics.deliveries(shares),
        coordinator_metrics.transactions(coordinators),
        coordinator_metrics.coordinators(coordinators),
        client_metrics.clients(broker.telemetry),
        node_metrics.process(node),  # last: it reports how many series were left out
    )
