"""Settings of share groups: their members, their records, and the share coordinator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.settings.definition import (
    Scope,
    Type,
    Value,
    at_least,
    between,
    boolean,
    distinct,
    integer,
    invalid,
    setting,
    string,
    strings,
)

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]{1,9})?)S)?)?", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class ShareSettings:
    group_share_session_timeout_ms: int = integer(
        45_000, "A member of a share group is removed if it sends no heartbeat for this long.", at_least(1)
    )
    group_share_min_session_timeout_ms: int = integer(
        45_000, "The minimum session timeout that can be set on a share group.", at_least(1)
    )
    group_share_max_session_timeout_ms: int = integer(
        60_000, "The maximum session timeout that can be set on a share group.", at_least(1)
    )
    group_share_heartbeat_interval_ms: int = integer(
        5000, "How often members of share groups send heartbeats.", at_least(1)
    )
    group_share_min_heartbeat_interval_ms: int = integer(
        5000, "The minimum heartbeat interval that can be set on a share group.", at_least(1)
    )
    group_share_max_heartbeat_interval_ms: int = integer(
        15_000, "The maximum heartbeat interval that can be set on a share group.", at_least(1)
    )
    group_share_max_size: int = integer(200, "The maximum number of members of a share group.", between(1, 1000))
    group_share_assignors: tuple[str, ...] = strings(
        ("simple",), "The assignor of share groups.", distinct("simple", empty=False)
    )
    group_share_assignment_interval_ms: int = integer(
        1000, "The minimum time between two assignments of a share group.", at_least(0), scope=Scope.CLUSTER_WIDE
    )
    group_share_min_assignment_interval_ms: int = integer(
        0, "The minimum assignment interval that can be set on a share group.", at_least(0)
    )
    group_share_max_assignment_interval_ms: int = integer(
        15_000, "The maximum assignment interval that can be set on a share group.", at_least(0)
    )
    group_share_initialize_retry_interval_ms: int = integer(
        30_000,
        "How long the group coordinator waits before it initializes the state of a partition again.",
        at_least(1),
        internal=True,
    )
    group_share_record_lock_duration_ms: int = integer(
        30_000, "How long a member may hold a record before it is delivered again.", between(1000, 3_600_000)
    )
    group_share_min_record_lock_duration_ms: int = integer(
        15_000, "The minimum lock duration that can be set on a share group.", between(1000, 30_000)
    )
    group_share_max_record_lock_duration_ms: int = integer(
        60_000, "The maximum lock duration that can be set on a share group.", between(30_000, 3_600_000)
    )
    group_share_delivery_count_limit: int = integer(
        5, "How often a record is delivered before it is given up.", between(2, 10)
    )
    group_share_min_delivery_count_limit: int = integer(
        2, "The minimum delivery count limit that can be set on a share group.", between(2, 5)
    )
    group_share_max_delivery_count_limit: int = integer(
        10, "The maximum delivery count limit that can be set on a share group.", between(5, 25)
    )
    group_share_partition_max_record_locks: int = integer(
        2000, "How many records of a partition a share group may hold at a time.", between(100, 10_000)
    )
    group_share_min_partition_max_record_locks: int = integer(
        100, "The minimum number of record locks that can be set on a share group.", between(100, 2000)
    )
    group_share_max_partition_max_record_locks: int = integer(
        4000, "The maximum number of record locks that can be set on a share group.", between(2000, 10_000)
    )
    group_share_max_share_sessions: int = integer(
        2000, "The maximum number of share sessions of a broker.", at_least(1)
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        False, "Whether the dead letter queue of a share group is created if it does not exist."
    )
    errors_deadletterqueue_topic_name_prefix: str = string(
        "dlq.", "What the names of dead letter queues of share groups must begin with. Empty: any name is allowed."
    )
    share_coordinator_state_topic_num_partitions: int = integer(
        50, "Number of partitions of __share_group_state. Do not change it once the topic exists.", at_least(1)
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        Type.SHORT,
        3,
        "Replication factor of __share_group_state. The topic is created when there are this many brokers.",
        at_least(1),
    )
    share_coordinator_state_topic_min_isr: int = setting(
        Type.SHORT, 2, "min.insync.replicas of __share_group_state.", at_least(1)
    )
    share_coordinator_state_topic_segment_bytes: int = integer(
        104_857_600, "segment.bytes of __share_group_state.", at_least(1)
    )
    share_coordinator_state_topic_compression_codec: int = integer(
        0, "The codec of __share_group_state, by number; 0 is none.", between(0, 4)
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(
        500, "How many updates of a partition's state the share coordinator writes between snapshots.", between(0, 500)
    )
    share_coordinator_write_timeout_ms: int = integer(
        5000, "How long a write may wait for the replicas of __share_group_state.", at_least(1)
    )
    share_coordinator_load_buffer_size: int = integer(
        5_242_880, "How many bytes a share coordinator reads at a time when it loads its state.", at_least(1)
    )
    share_coordinator_state_topic_prune_interval_ms: int = integer(
        300_000, "How often records before the oldest snapshot are deleted.", at_least(1), internal=True
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = integer(
        300_000, "How old the snapshot of an idle partition may become.", at_least(1), internal=True
    )


def offset_reset(text: str) -> str | int | None:
    """Parse `share.auto.offset.reset`: "earliest", "latest", or milliseconds before now; None if it is neither."""
    lowered = text.lower()
    if lowered in (EARLIEST, LATEST):
        return lowered
    found = _DURATION.fullmatch(text[len(_BY_DURATION) :]) if lowered.startswith(_BY_DURATION) else None
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def check_offset_reset(name: str, value: Value) -> None:
    if offset_reset(value) is None:
        raise invalid(name, value, "must be latest, earliest or by_duration:PnDTnHnMn.nS")
