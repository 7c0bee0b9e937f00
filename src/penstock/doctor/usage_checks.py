"""Findings about the use of a cluster: groups that lag or keep rebalancing, transactions that do not end."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.doctor.findings import Finding, Limits, count, minutes
from penstock.doctor.observations import REBALANCING, GroupSeen, Observations, ProgressSeen


def transactions(seen: Observations) -> Iterator[Finding]:
    for each in seen.hanging:
        assert each.where is not None
        yield Finding(
            "transaction-hanging",
            "error",
            str(each.where),
            f"a transaction in {each.where} will never end",
            f"producer {each.producer_id} began it {minutes(each.age_ms)} ago at offset {each.start_offset}, and no "
            "coordinator knows of it: readers of committed records stop there for good",
            f"penstock transactions abort {each.where.topic}:{each.where.partition} --start-offset {each.start_offset}",
        )
    for each in seen.open_long:
        yield Finding(
            "transaction-long",
            "warning",
            str(each.transactional_id),
            f"the transaction of {each.transactional_id!r} has been open for {minutes(each.age_ms)}",
            "its producer hangs, or has a long transaction.timeout.ms; readers of committed records wait for it",
            "see what the producer does; it is aborted when its time-out is over",
        )


def groups(seen: Observations, limits: Limits, of_spark: Collection[str] = ()) -> Iterator[Finding]:
    """`of_spark`: groups that never have members; their lag is that of a pipeline."""
    for group in seen.groups:
        if group.group_id in of_spark:
            continue
        rebalances = _rebalances(group)
        if rebalances > limits.rebalances_max:
            yield Finding(
                "group-rebalancing",
                "warning",
                group.group_id,
                f"group {group.group_id!r} does not come to rest: {rebalances} rebalances in "
                f"{seen.watched_ms / 1000:.0f} s",
                "members come and go: they crash, are restarted, or take longer between two polls than "
                f"max.poll.interval.ms allows{group.clients and f' ({group.clients})'}",
                "see the logs of the members; if one is slow, lower max.poll.records or raise max.poll.interval.ms; "
                "give instances that restart a group.instance.id",
            )
        elif (lag := sum(each.lag for each in group.progress)) > limits.lag_max:
            yield _lagging(group, lag, seen)


def _rebalances(group: GroupSeen) -> int:
    """Return the number of rebalances that the samples show; there were at least as many."""
    generations = [each.generation for each in group.samples if each.generation is not None]
    counted = generations[-1] - generations[0] if generations else 0
    changes = 0
    settled = None
    for sample in group.samples:
        if sample.state in REBALANCING or not sample.members:
            continue
        changes += settled is not None and settled != sample.members
        settled = sample.members
    # The states alone also show a group that empties and fills again.
    begun = sum(
        later.state in REBALANCING and earlier.state not in REBALANCING
        for earlier, later in zip(group.samples, group.samples[1:], strict=False)
    )
    return max(counted, changes, begun)


def _lagging(group: GroupSeen, lag: int, seen: Observations) -> Finding:
    members = group.samples[-1].members if group.samples else frozenset()
    behind = [each for each in group.progress if each.lag]
    worst = max(behind, key=lambda each: each.lag)
    unread = [each for each in behind if not each.has_member]
    if not members:
        why = "the group has no members, so nothing reads its topics"
        todo = f"start its consumers; if it is not needed any more, penstock groups delete {group.group_id}"
    elif unread:
        why = f"{count(len(unread), 'partition')} are read by no member, {unread[0].where} among them"
        todo = "see what the members subscribe to (penstock groups describe); start more of them"
    elif all(_stands_still(each) for each in behind):
        why = (
            f"nothing was committed in {seen.watched_ms / 1000:.0f} s: its members hang, fail at a record, or do not "
            "commit"
        )
        todo = "see the logs of the members; a record that cannot be handled belongs into a dead letter topic"
    else:
        why = f"its members are slower than the producers: most is in {worst.where} ({worst.lag})"
        todo = (
            "start more members, up to one a partition; where one partition has most of it, its keys are uneven"
            if len(members) < len(group.progress)
            else "make its members faster, or give the topic more partitions: each has a member of its own already"
        )
    return Finding(
        "group-lagging", "warning", group.group_id, f"group {group.group_id!r} is {lag} records behind", why, todo
    )


def _stands_still(each: ProgressSeen) -> bool:
    return each.committed == each.committed_before
