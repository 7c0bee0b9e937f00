"""Derives findings from observations, as a pure function. All of the doctor's knowledge is here and in the checks.

A finding names the problem, the cause as far as it is visible, and the remedy. One cause is one finding: partitions
that lack the same broker are reported together.
"""

from __future__ import annotations

from penstock.doctor import address_checks, cluster_checks, pipeline_checks, share_checks, usage_checks
from penstock.doctor.findings import Finding, Limits
from penstock.doctor.observations import Observations


def diagnose(seen: Observations, limits: Limits | None = None) -> list[Finding]:
    """Return the findings, errors first."""
    limits = limits or Limits()
    findings = [
        *address_checks.bootstrap(seen),
        *address_checks.cluster_ids(seen, limits),
        *address_checks.listeners(seen),
        *cluster_checks.controllers(seen),
        *cluster_checks.brokers(seen),
        *cluster_checks.partitions(seen),
        *cluster_checks.clocks(seen, limits),
        *cluster_checks.disks(seen.directories, limits),
        *usage_checks.transactions(seen),
        *usage_checks.groups(seen, limits, pipeline_checks.spark_groups(seen)),
        *share_checks.share_groups(seen, limits),
        *pipeline_checks.pipelines(seen, limits),
        *pipeline_checks.spark_queries(seen, limits),
    ]
    return sorted(findings, key=lambda finding: finding.severity != "error")


def can_check(seen: Observations) -> bool:
    """Whether any broker answered."""
    return any(reached.ok for reached in seen.bootstrap)
