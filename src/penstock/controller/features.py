"""Feature levels: the features that the whole cluster has finalized, and changes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import IntEnum

from penstock.controller.eligible import records_to_disable, records_to_enable
from penstock.controller.result import Result
from penstock.controller.view import ClusterView
from penstock.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    Levels,
    downgrade_loses_metadata,
)
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class UpgradeType(IntEnum):
    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureHandlers:
    """Handlers over one image.

    `kraft_version` and `other_voters` come from the quorum and are not in the image; `min_insync_replicas` comes from
    the controller's file.
    """

    def __init__(
        self, view: ClusterView, kraft_version: int, min_insync_replicas: int, other_voters: Collection[int]
    ) -> None:
        self._view = view
        self._image = view.image
        self._kraft_version = kraft_version
        self._min_insync_replicas = min_insync_replicas
        self._other_voters = other_voters

    def update_features(self, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
        """Apply all updates or none: the first refused update refuses the request."""
        records: list[Message] = []
        counts = Counter(update.feature for update in request.feature_updates)
        for update in request.feature_updates:
            try:
                if counts[update.feature] > 1:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST, f"Feature {update.feature} appears more than once in the request."
                    )
                records += self._update(update)
            except KafkaError as error:
                return Result([], refused(request, error))
        # Versions 0 and 1 answer per feature; from version 2 on there is only the top-level error code.
        results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None) for update in request.feature_updates
        ]
        response = UpdateFeaturesResponse(error_message=None, results=results)
        return Result([] if request.validate_only else records, response)

    def _update(self, update: FeatureUpdateKey) -> list[Message]:
        name, level = update.feature, update.max_version_level
        upgrade_type = update.upgrade_type
        if update.allow_downgrade:
            upgrade_type = UpgradeType.SAFE_DOWNGRADE  # version 0's flag for a downgrade
        if upgrade_type not in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
            raise invalid(name, level, "The controller does not support the given upgrade type.")
        current = self._kraft_version if name == KRAFT_VERSION else self._image.features.get(name, 0)
        if level < 0:
            raise invalid(name, level, "A feature version cannot be less than 0.")
        self._check_supported(name, level)
        if level < current and upgrade_type == UpgradeType.UPGRADE:
            raise invalid(
                name,
                level,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade.",
            )
        if level > current and upgrade_type != UpgradeType.UPGRADE:
            raise invalid(name, level, "Can't downgrade to a newer version.")
        if name == KRAFT_VERSION:
            if level != current:
                raise invalid(name, level, "The version of the quorum is set when a cluster is formatted.")
            return []
        if name == METADATA_VERSION and downgrade_loses_metadata(current, level):
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Unsupported metadata.version downgrade from {current} to {level}. "
                "Refusing to perform the requested downgrade because it might delete metadata information.",
            )
        if level == current:
            return []
        records: list[Message] = []
        if name == ELIGIBLE_LEADER_REPLICAS_VERSION:
            if level:
                records = records_to_enable(self._image, self._min_insync_replicas)
            else:
                records = records_to_disable(self._view)
        return [*records, FeatureLevelRecord(name=name, feature_level=level)]

    def _check_supported(self, name: str, level: int) -> None:
        """Check that every node supports the level. Level 0 is "not used", which all support."""
        ranges = [("Local controller", SUPPORTED_FEATURES.get(name, Levels(0, 0)))]
        ranges += [
            (f"Broker {broker.broker_id}", broker.features.get(name, Levels(0, 0)))
            for broker in self._image.brokers.values()
        ]
        ranges += [
            (f"Controller {controller.controller_id}", controller.features.get(name, Levels(0, 0)))
            for controller in self._image.controllers.values()
        ]
        for who, levels in ranges:
            if level not in levels:
                why = (
                    "does not support this feature."
                    if levels == Levels(0, 0)
                    else f"only supports versions {levels.minimum}-{levels.maximum}"
                )
                raise invalid(name, level, f"{who} {why}")
        for node_id in self._other_voters:
            if node_id not in self._image.controllers:
                raise invalid(name, level, f"controller {node_id} has not registered, and may not support this feature")


def invalid(name: str, level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}")


def refused(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=error.code,
        error_message=f"The update failed for all features since the following feature had an error: {error.message}",
        results=[
            UpdatableFeatureResult(feature=update.feature, error_code=error.code, error_message=error.message)
            for update in request.feature_updates
        ],
    )
