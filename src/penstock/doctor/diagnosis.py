"""From observations to findings: pure, and all of the doctor's knowledge.

A finding names what is wrong, the cause as far as it can be seen, and what to do. One cause is one finding: partitions
that lack the same broker are told of together.
"""

from __future__ import annotations

from penstock.doctor import of_addresses, of_clusters, of_users
from penstock.doctor.findings import Finding, Limits
from penstock.doctor.observations import Observations


def diagnose(seen: Observations, limits: Limits | None = None) -> list[Finding]:
    """Errors first."""
    limits = limits or Limits()
    findings = [
        *of_addresses.bootstrap(seen),
        *of_addresses.cluster_ids(seen, limits),
        *of_addresses.listeners(seen),
        *of_clusters.controllers(seen),
        *of_clusters.brokers(seen),
        *of_clusters.partitions(seen),
        *of_clusters.clocks(seen, limits),
        *of_clusters.disks(seen.directories, limits),
        *of_users.transactions(seen),
        *of_users.groups(seen, limits),
    ]
    return sorted(findings, key=lambda finding: finding.severity != "error")


def can_check(seen: Observations) -> bool:
    """Whether anybody answered at all."""
    return any(reached.ok for reached in seen.bootstrap)
