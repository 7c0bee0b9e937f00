"""Findings about share groups: a backlog without members, records on their last attempt, records given up."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.findings import Finding, Limits, count
from penstock.doctor.observations import Observations, ShareGroupSeen


def share_groups(seen: Observations, limits: Limits) -> Iterator[Finding]:
    for group in seen.share_groups:
        if sum(each.lag for each in group.progress) > limits.lag_max:
            yield _lagging(group, seen.watched_ms / 1000)
        if group.last_attempts:
            yield _last_attempts(group, group.last_attempts)
        if (group.discarded or 0) > limits.dead_letters_max:
            yield _discards(group, group.discarded or 0)


def _lagging(group: ShareGroupSeen, watched_s: float) -> Finding:
    behind = [each for each in group.progress if each.lag]
    lag = sum(each.lag for each in behind)
    grown = lag - sum(each.lag_before for each in behind)
    unread = [each for each in behind if not each.has_member]
    name = group.group_id
    if not group.members:
        why = "the group has no members, so nothing works on its topics"
        todo = f"start its workers; if it is not needed any more, penstock share-groups delete {name}"
    elif unread:
        why = f"{count(len(unread), 'partition')} are read by no member, {unread[0].where} among them"
        todo = "see what the members subscribe to (penstock share-groups describe)"
    elif _stands_still(group):
        held = f"its members have {count(group.acquired, 'record')} and " if group.acquired else ""
        why = f"{held}nothing was finished in {watched_s:.0f} s: the members hang, or fail at every record"
        todo = "see the logs of the members; if a record takes long, lower max_records so that others get some"
    else:
        trend = f": it grew by {grown} in {watched_s:.0f} s" if grown > 0 else ""
        why = f"its {count(group.members, 'member')} are slower than the producers{trend}"
        todo = "start more members: any number of them can share a partition"
    return Finding("share-group-lagging", "warning", name, f"share group {name!r} has {lag} records to do", why, todo)


def _stands_still(group: ShareGroupSeen) -> bool:
    if group.accepted is not None:
        return not group.accepted
    return all(each.start == each.start_before and each.lag >= each.lag_before for each in group.progress)


def _last_attempts(group: ShareGroupSeen, records: int) -> Finding:
    return Finding(
        "share-group-last-attempts",
        "warning",
        group.group_id,
        f"{count(records, 'record')} of share group {group.group_id!r} have one attempt left",
        "all other deliveries failed: members released them, died with them, or held them until the lock ended"
        f"{group.clients and f' ({group.clients})'}; after the next failure they are not delivered again",
        "see the logs of the members; a longer share.record.lock.duration.ms helps where work takes long, a higher "
        "share.delivery.count.limit where it fails by chance",
    )


def _discards(group: ShareGroupSeen, records: int) -> Finding:
    return Finding(
        "share-group-discards",
        "warning",
        group.group_id,
        f"share group {group.group_id!r} has given up {count(records, 'record')} since the brokers started",
        "each was delivered share.delivery.count.limit times, and never accepted: it is archived, or in the dead "
        "letter queue if the group has one",
        "see the logs of the members for the cause; set errors.deadletterqueue.topic.name for the group to keep such "
        "records; penstock share-groups reset-offsets delivers everything from an offset on again",
    )
