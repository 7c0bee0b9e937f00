"""Metrics of share groups: their lag, from the group's coordinator, and deliveries, from the partitions' leaders.

The lag needs three brokers: the group's coordinator knows the partitions, share coordinators know what is done in them,
and leaders where they end. So the coordinator asks as for DescribeShareGroupOffsets, once per scrape. What is not
answered in time has no lag in this scrape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from penstock.broker.coordinators.coordinators import Coordinators
from penstock.broker.metrics import families as f
from penstock.broker.metrics.counters import Counters
from penstock.broker.metrics.exposition import Collected, Labels, Sample
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.protocol.messages.describe_share_group_offsets import GroupResult
from penstock.settings.live import LiveSettings
from penstock.shares.states import Outcome

ASK_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSources:
    loop: asyncio.AbstractEventLoop
    settings: LiveSettings
    counters: Counters
    coordinators: Coordinators
    partitions: SharePartitions

    def limited(self, samples: list[Sample]) -> list[Sample]:
        limit = self.settings.now.penstock_metrics_max_series
        self.counters.series_left_out += max(0, len(samples) - limit)
        return samples[:limit]


async def offsets_of(sources: ShareSources) -> list[GroupResult]:
    """Where the share groups are that this broker coordinates."""
    names = [
        group_id
        for partition in list(sources.coordinators.groups.partitions.values())
        if partition.shard is not None
        for group_id in partition.shard.state.shares
    ]
    asked: list[asyncio.Future[GroupResult]] = []
    for name in islice(names, sources.settings.now.penstock_metrics_max_series):
        future: asyncio.Future[GroupResult] = sources.loop.create_future()
        asked.append(future)
        sources.coordinators.share_groups.describe_offsets(name, None, partial(_answered, future))
    if not asked:
        return []
    done, late = await asyncio.wait(asked, timeout=ASK_S)
    for future in late:
        future.cancel()
    return [future.result() for future in asked if future in done]


def _answered(future: asyncio.Future[GroupResult], result: GroupResult) -> None:
    if not future.done():
        future.set_result(result)


def lags(sources: ShareSources, results: list[GroupResult]) -> Iterator[Collected]:
    starts: list[Sample] = []
    found: list[Sample] = []
    for group in results:
        for topic in group.topics if not group.error_code else ():
            for part in topic.partitions:
                labels = group.group_id, topic.topic_name, str(part.partition_index)
                if not part.error_code and part.start_offset >= 0:
                    starts.append((labels, part.start_offset))
                    if part.lag >= 0:
                        found.append((labels, part.lag))
    yield f.SHARE_LAG, sources.limited(found)
    yield f.SHARE_START, starts[: sources.settings.now.penstock_metrics_max_series]


def deliveries(sources: ShareSources) -> Iterator[Collected]:
    acquired: list[Sample] = []
    last_attempts: list[Sample] = []
    for served in list(sources.partitions):
        if served.core is not None:
            topic, partition = served.replica.topic_partition
            labels: Labels = served.key.group_id, topic, str(partition)
            tally = served.core.tally()
            acquired.append((labels, tally.acquired))
            last_attempts.append((labels, tally.last_attempts))
    yield f.SHARE_ACQUIRED, sources.limited(acquired)
    yield f.SHARE_LAST_ATTEMPTS, last_attempts[: sources.settings.now.penstock_metrics_max_series]
    ended: list[Sample] = [
        ((group_id, topic, outcome.value), counts[outcome])
        for (group_id, topic), counts in list(sources.partitions.outcomes.items())
        for outcome in Outcome
    ]
    yield f.SHARE_DELIVERIES, sources.limited(ended)
