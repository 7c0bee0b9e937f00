"""Feature levels: what the nodes of a cluster support, and what the cluster has agreed to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

# What each release of Kafka raised: a cluster that is formatted with a release has the levels up to there. Not
# kraft.version: whether voters can be added and removed is for the operator to decide, not for the release.
_RAISED: Final[Mapping[str, Mapping[str, int]]] = {
    "4.0": {"metadata.version": 25, "transaction.version": 2, "group.version": 1},
    "4.1": {"metadata.version": 27, "eligible.leader.replicas.version": 1},
    "4.2": {"metadata.version": 29, "share.version": 1, "streams.version": 1},
    "4.3": {"metadata.version": 30},
    "4.4": {"metadata.version": 33, "share.version": 2},
}
RELEASES: Final = tuple(_RAISED)


def levels_of(release: str) -> dict[str, int]:
    """By feature; KafkaError for a release that is not known here."""
    levels: dict[str, int] = {}
    for each, raised in _RAISED.items():
        levels |= raised
        if each == release:
            return levels
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown release {release!r}; there are {', '.join(RELEASES)}")


@dataclass(frozen=True, slots=True)
class Feature:
    name: str
    minimum: int  # of the levels that the broker supports
    maximum: int
    level: int  # of the cluster; 0 if it is not used


class Features:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> list[Feature]:
        request = ApiVersionsRequest(client_software_name="penstock-admin", client_software_version="1")
        response = self._cluster.request(request, ApiVersionsResponse)
        raise_for(response.error_code, None, "cannot describe the features")
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        found = [
            Feature(each.name, each.min_version, each.max_version, levels.get(each.name, 0))
            for each in response.supported_features
        ]
        return sorted(found, key=lambda each: each.name)

    def upgrade(self, release: str, *, dry_run: bool = False) -> dict[str, int]:
        """Raise the features to the levels of a release of Kafka, all or none; returns the levels.

        Features that the brokers do not have are left out.
        """
        supported = {each.name for each in self.describe()}
        levels = {name: level for name, level in levels_of(release).items() if name in supported}
        self.update(levels, dry_run=dry_run)
        return levels

    def update(self, levels: Mapping[str, int], *, dry_run: bool = False) -> None:
        """Raise features to these levels, all or none."""
        request = UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()],
            validate_only=dry_run,
        )
        response = self._cluster.request(request, UpdateFeaturesResponse)
        raise_for(response.error_code, response.error_message, "cannot change the features")
