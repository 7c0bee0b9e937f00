"""Findings about the cluster itself: brokers, controllers, partitions, clocks, disks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.doctor.findings import Finding, Limits, count, named
from penstock.doctor.observations import DirectorySeen, Observations, PartitionSeen


def controllers(seen: Observations) -> Iterator[Finding]:
    quorum = seen.quorum
    if quorum is None:
        return
    if quorum.leader_id < 0:
        yield Finding(
            "no-controller",
            "error",
            "quorum",
            "the metadata quorum has no leader",
            "fewer than half of the controllers can talk to each other",
            "start the controllers that are down; see server.log of the others for what they wait for",
        )
    behind = [(node_id, lag) for node_id, lag in quorum.lags if lag > 1000]
    for node_id, lag in behind:
        yield Finding(
            "controller-behind",
            "warning",
            f"controller {node_id}",
            f"controller {node_id} lacks {lag} records of the metadata log",
            "it is down, cannot reach the leader, or has just started",
            "see that it runs, and its server.log: until it has caught up, the quorum bears one loss less",
        )


def brokers(seen: Observations) -> Iterator[Finding]:
    for broker in seen.brokers:
        if broker.fenced:
            lacking = [each for each in seen.partitions if broker.broker_id in each.replicas]
            yield Finding(
                "broker-down",
                "error",
                f"broker {broker.broker_id}",
                f"broker {broker.broker_id} is registered, but not there",
                f"the controller does not hear from it; it has replicas of {count(len(lacking), 'partition')}",
                "start it; if it is gone for good, move its replicas (penstock topics reassign) and unregister it",
            )


def partitions(seen: Observations) -> Iterator[Finding]:
    offline = [each for each in seen.partitions if each.leader is None]
    for lost, group in _by_missing(offline):
        yield Finding(
            "partition-offline",
            "error",
            named(group),
            f"{count(len(group), 'partition')} cannot be read or written: no leader",
            f"who has all records is not there: {lost}",
            f"start {lost}; as a last resort, and with loss of records, let another replica be elected "
            "(unclean.leader.election.enable)",
        )
    short = [each for each in seen.partitions if each.leader is not None and each.min_isr is not None]
    refusing = [each for each in short if len(each.isr) < min(each.min_isr or 1, len(each.replicas))]
    for lost, group in _by_missing(refusing):
        yield Finding(
            "partition-under-min-isr",
            "error",
            named(group),
            f"{count(len(group), 'partition')} refuse acks=all: fewer replicas are in sync than min.insync.replicas",
            f"not in sync: {lost}",
            f"bring {lost} back; lowering min.insync.replicas lets producers go on with fewer copies",
        )
    under = [each for each in seen.partitions if each.leader is not None and each not in refusing]
    for lost, group in _by_missing([each for each in under if len(each.isr) < len(each.replicas)]):
        fenced = {broker.broker_id for broker in seen.brokers if broker.fenced}
        missing = {replica for each in group for replica in each.replicas if replica not in each.isr}
        why = "it is down" if missing <= fenced else "it runs, but does not keep up, or cannot reach the leaders"
        yield Finding(
            "partition-under-replicated",
            "warning",
            named(group),
            f"{count(len(group), 'partition')} have fewer copies than they should",
            f"not in sync: {lost}; {why}",
            f"bring {lost} back; if it runs, see its server.log, its disk and its network",
        )


def _by_missing(partitions: Iterable[PartitionSeen]) -> list[tuple[str, list[PartitionSeen]]]:
    """Group partitions that lack the same brokers, with the brokers' names."""
    found: dict[frozenset[int], list[PartitionSeen]] = {}
    for each in partitions:
        if each.leader is None:
            missing = each.isr or each.replicas
        else:
            missing = tuple(replica for replica in each.replicas if replica not in each.isr)
        found.setdefault(frozenset(missing), []).append(each)
    return [
        (f"broker {', '.join(map(str, sorted(missing)))}", sorted(group, key=lambda each: each.where))
        for missing, group in found.items()
    ]


def clocks(seen: Observations, limits: Limits) -> Iterator[Finding]:
    for clock in seen.clocks:
        surely = abs(clock.offset_ms) - clock.uncertainty_ms
        if surely > limits.clock_skew_max_ms:
            who = f"{'controller' if clock.is_controller else 'broker'} {clock.node_id}"
            ahead = "ahead of" if clock.offset_ms > 0 else "behind"
            yield Finding(
                "clock-skew",
                "warning",
                who,
                f"the clock of {who} is {abs(clock.offset_ms) / 1000:.1f} s {ahead} the one here",
                "one of the two machines does not keep time; records get wrong timestamps, and retention, time-outs of "
                "transactions and searches by time go by them",
                "run chrony or another NTP client on both",
            )


def disks(directories: Sequence[DirectorySeen], limits: Limits) -> Iterator[Finding]:
    for directory in directories:
        who = f"broker {directory.broker_id}"
        if directory.error is not None:
            yield Finding(
                "disk-failed",
                "error",
                who,
                f"{directory.path} of {who} is offline",
                directory.error,
                "see the broker's server.log; replace the disk",
            )
        total, usable = directory.total_bytes, directory.usable_bytes
        if total and usable is not None and usable < total * limits.disk_free_min:
            yield Finding(
                "disk-nearly-full",
                "error" if usable < total * limits.disk_free_min / 5 else "warning",
                who,
                f"the disk of {who} has {100 * usable / total:.1f}% left ({directory.path})",
                f"{usable / 2**30:.1f} GiB of {total / 2**30:.1f} GiB are free; on a full disk writes are refused "
                "(KAFKA_STORAGE_ERROR)",
                "delete topics, shorten retention.ms or retention.bytes, move partitions to other brokers (penstock "
                "topics reassign) or give it a larger disk",
            )
