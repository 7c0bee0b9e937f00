"""Metrics of client quotas: who has one, what of it is used, and who is throttled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from penstock.broker.metrics import families as f
from penstock.broker.metrics.exposition import Collected, Sample
from penstock.broker.metrics.families import Family
from penstock.broker.metrics.node_metrics import NodeSources
from penstock.quotas.accounts import Accounts


def quotas(sources: NodeSources) -> Iterator[Collected]:
    quotas, now_ms = sources.throttling.quotas, sources.throttling.now_ms()
    clients: tuple[tuple[str, Accounts[Any], Family], ...] = (
        ("Produce", quotas.produce, f.QUOTA_BYTE_RATE),
        ("Fetch", quotas.fetch, f.QUOTA_BYTE_RATE),
        ("Request", quotas.request, f.QUOTA_REQUEST_TIME),
        ("ControllerMutation", quotas.mutation, f.QUOTA_TOKENS),
    )
    families = (f.THROTTLE_TIME, f.QUOTA_BYTE_RATE, f.QUOTA_REQUEST_TIME, f.QUOTA_TOKENS, f.QUOTA_LIMIT)
    samples: dict[Family, list[Sample]] = {family: [] for family in families}
    left = sources.settings.now.penstock_metrics_max_series
    for name, accounts, family in clients:
        if not left:
            accounts.forget_idle(now_ms)
        for usage in islice(accounts.usages(now_ms), left):
            labels = (name, usage.user or "", usage.client_id or "")
            samples[family].append((labels, usage.value))
            samples[f.THROTTLE_TIME].append((labels, usage.throttle_ms))
            samples[f.QUOTA_LIMIT].append((labels, usage.limit))
        shown = min(left, len(accounts))
        sources.counters.series_left_out += len(accounts) - shown
        left -= shown
    yield from samples.items()
    # Addresses are many, and not clients: only the number of refused connections is reported.
    quotas.connection.forget_idle(now_ms)
    kinds = [(name, accounts) for name, accounts, _ in clients] + [("Connection", quotas.connection)]
    yield f.THROTTLED_REQUESTS, [((name,), accounts.throttled_requests) for name, accounts in kinds]
    yield f.THROTTLED_SECONDS, [((name,), accounts.throttled_ms / 1000) for name, accounts in kinds]
    listeners = sources.listeners.of_brokers
    throttled = [((each.name,), sum(peer.is_throttled for peer in each.connections)) for each in listeners]
    yield f.THROTTLED_CONNECTIONS, throttled
