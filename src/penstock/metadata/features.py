"""Feature levels: the levels this software supports, and the metadata.version levels that change records.

Only features that are implemented appear here. Others are added when they work, so that a finalized level is always
supported. In a cluster with other software more may be finalized: a broker is refused then (`refused_because`), because
clients would find a coordinator that does not serve them. A controller needs only metadata.version, which determines
the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
# Level 1 has share groups. Level 2 adds their dead letters (KIP-1191).
SHARE_VERSION: Final = "share.version"
# Level 1 has streams groups (KIP-1071).
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION: Final = "transaction.version"

# metadata.version by Kafka release. 4.0 is the oldest we write: below it partition records have another format.
METADATA_4_0_IV3: Final = 25
METADATA_4_3_IV0: Final = 30
METADATA_4_4_IV1: Final = 32
METADATA_4_4_IV2: Final = 33

# The levels at which the format of the metadata changed: a downgrade across one of them could lose data.
_METADATA_CHANGED_AT: Final = (METADATA_4_3_IV0, METADATA_4_4_IV1, METADATA_4_4_IV2)


class Levels(NamedTuple):
    """An inclusive range of feature levels."""

    minimum: int
    maximum: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.minimum <= level <= self.maximum

    def __str__(self) -> str:
        return f"{self.minimum}-{self.maximum}"


SUPPORTED_FEATURES: Final[Mapping[str, Levels]] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: Levels(0, 1),
    GROUP_VERSION: Levels(0, 1),
    KRAFT_VERSION: Levels(0, 1),
    METADATA_VERSION: Levels(METADATA_4_0_IV3, METADATA_4_4_IV2),
    SHARE_VERSION: Levels(0, 2),
    STREAMS_VERSION: Levels(0, 1),
    TRANSACTION_VERSION: Levels(0, 2),
}

# The finalized features of a new cluster. kraft.version is a record of the quorum, not of the controller.
NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = {
    METADATA_VERSION: METADATA_4_4_IV2,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 2,
    STREAMS_VERSION: 1,
    TRANSACTION_VERSION: 2,
}


def downgrade_loses_metadata(current: int, target: int) -> bool:
    return any(target < changed_at <= current for changed_at in _METADATA_CHANGED_AT)


def refused_because(finalized: Mapping[str, int], offered: Mapping[str, Levels] = SUPPORTED_FEATURES) -> list[str]:
    """Each finalized feature that a node does not serve, with the versions of both sides."""
    return [
        f"the cluster has finalized {name} at version {level}, and this node serves "
        + ("no version of it" if name not in offered else f"versions {offered[name]}")
        for name, level in sorted(finalized.items())
        if level not in offered.get(name, Levels(0, 0))
    ]


def why_not_lead(finalized: Mapping[str, int]) -> str | None:
    """Why a controller of this software cannot decide about a cluster's metadata."""
    level = finalized.get(METADATA_VERSION, 0)
    if not level or level in SUPPORTED_FEATURES[METADATA_VERSION]:
        return None
    return refused_because({METADATA_VERSION: level})[0]
