"""Settings of client quotas. The quotas themselves are metadata of the cluster: see AlterClientQuotas."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import at_least, integer


@dataclass(frozen=True, kw_only=True)
class QuotaSettings:
    quota_window_num: int = integer(
        11,
        "How many samples the rate of a client is measured over: one of them is being filled.",
        at_least(1),
    )
    quota_window_size_seconds: int = integer(
        1,
        "The length of a sample. It is also the longest time that a client is throttled for its share of request time.",
        at_least(1),
    )
    controller_quota_window_num: int = integer(
        11,
        "How many samples' worth of partitions a client may create or delete at once.",
        at_least(1),
    )
    controller_quota_window_size_seconds: int = integer(
        1,
        "The length of a sample of controller mutations.",
        at_least(1),
    )
