"""Findings, the limits they depend on, and helpers for their wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.doctor.observations import PartitionSeen

Severity = Literal["error", "warning"]

NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    severity: Severity
    subject: str  # the address, broker, partition or group it is about
    what: str
    why: str
    todo: str


@dataclass(frozen=True, slots=True)
class Limits:
    lag_max: int = 10_000  # records of a group, over all partitions
    disk_free_min: float = 0.10
    clock_skew_max_ms: int = 2_000
    rebalances_max: int = 1  # during the observation
    cluster_id: str | None = None  # the expected cluster id
    dead_letters_max: int = 0  # of a running pipeline, since it started; of a share group, since the brokers did


def named(partitions: Sequence[PartitionSeen]) -> str:
    names = ", ".join(str(each.where) for each in partitions[:NAMED_MAX])
    return names if len(partitions) <= NAMED_MAX else f"{names} and {len(partitions) - NAMED_MAX} more"


def count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun}" if number == 1 else f"{number} {plural}"


def minutes(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
