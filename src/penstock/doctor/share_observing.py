"""Observes share groups: where they are at the beginning and at the end of the watch, and what metrics say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.client.errors import ClientError
from penstock.doctor.metrics_pages import Page
from penstock.doctor.observations import ShareGroupSeen, ShareProgressSeen
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.client.wire.admin.share_groups import ShareGroupDescription, ShareOffset

DELIVERIES = "penstock_sharegroup_deliveries_total"
ACQUIRED = "penstock_sharegroup_acquired_records"
LAST_ATTEMPTS = "penstock_sharegroup_last_attempt_records"
GROUPS_MAX = 500


@dataclass(frozen=True, slots=True)
class ShareLook:
    """One share group at one moment."""

    group: ShareGroupDescription
    offsets: Mapping[TopicPartition, ShareOffset]
    accepted: int | None
    """Records, since the brokers started; None without metrics."""

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.offsets.values())


def look_at_share_groups(
    admin: Admin, pages: Mapping[int, Page], unobserved: Callable[[str], None]
) -> dict[str, ShareLook]:
    """All share groups; one that cannot be asked is left out. A cluster that knows no share groups has none."""
    try:
        names = [each.group_id for each in admin.share_groups.list()]
    except (ClientError, KafkaError):  # of brokers before Kafka 4.0; those that have them were asked for groups already
        return {}
    if len(names) > GROUPS_MAX:
        unobserved(f"share groups: only the first {GROUPS_MAX} of {len(names)}")
    found = {}
    for name in names[:GROUPS_MAX]:
        try:
            (group,) = admin.share_groups.describe([name])
            offsets = {TopicPartition(each.topic, each.partition): each for each in admin.share_groups.offsets(name)}
        except (ClientError, KafkaError) as error:
            unobserved(f"share group {name}: {' '.join(str(error).split())}")
        else:
            found[name] = ShareLook(group, offsets, _deliveries(pages, name, "accepted"))
    return found


def share_group_seen(before: ShareLook, after: ShareLook, pages: Mapping[int, Page]) -> ShareGroupSeen:
    """What two looks say; `pages` are those of the second."""
    name = after.group.group_id
    assigned = {where for member in after.group.members for where in member.assignment}
    progress = []
    for where, each in after.offsets.items():
        first = before.offsets.get(where, each)
        if each.lag is not None and each.start is not None:
            progress.append(
                ShareProgressSeen(
                    where,
                    each.start,
                    each.start if first.start is None else first.start,
                    each.lag,
                    each.lag if first.lag is None else first.lag,
                    where in assigned,
                )
            )
    return ShareGroupSeen(
        name,
        len(after.group.members),
        after.group.who() if after.group.members else "",
        tuple(progress),
        None if after.accepted is None else after.accepted - (before.accepted or 0),
        _total(pages, ACQUIRED, name),
        _total(pages, LAST_ATTEMPTS, name),
        _deliveries(pages, name, "delivery_limit"),
    )


def _deliveries(pages: Mapping[int, Page], name: str, outcome: str) -> int | None:
    return _total(pages, DELIVERIES, name, outcome=outcome)


def _total(pages: Mapping[int, Page], family: str, name: str, **labels: str) -> int | None:
    if not pages:
        return None
    return int(sum(page.total(family, sharegroup=name, **labels) for page in pages.values()))
