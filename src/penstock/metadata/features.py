"""Feature levels: the levels this software supports, and the metadata.version levels that change records.

Only features that are implemented appear here. Others are added when they work, so that a finalized level is always
supported.
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
TRANSACTION_VERSION: Final = "transaction.version"

# metadata.version by Kafka release. 4.0 is the oldest we write: below it partition records have another format.
METADATA_4_0_IV3: Final = 25
METADATA_4_3_IV0: Final = 30
METADATA_4_4_IV1: Final = 32

# The levels at which the format of the metadata changed: a downgrade across one of them could lose data.
_METADATA_CHANGED_AT: Final = (METADATA_4_3_IV0, METADATA_4_4_IV1)


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
    METADATA_VERSION: Levels(METADATA_4_0_IV3, METADATA_4_4_IV1),
    SHARE_VERSION: Levels(0, 2),
    TRANSACTION_VERSION: Levels(0, 2),
}

# The finalized features of a new cluster. kraft.version is a record of the quorum, not of the controller.
NEW_CLUSTER_FEATURES: Final[Mapping[str, int]] = {
    METADATA_VERSION: METADATA_4_4_IV1,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 2,
    TRANSACTION_VERSION: 2,
}


def downgrade_loses_metadata(current: int, target: int) -> bool:
    return any(target < changed_at <= current for changed_at in _METADATA_CHANGED_AT)
