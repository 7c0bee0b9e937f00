"""UpdateFeatures (API key 57). Raise or lower finalized feature levels."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = field("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field("0+")
    validate_only: bool = field("1+")


class FeatureUpdateKey(Message):
    feature: str = field("0+")
    max_version_level: Int16 = field("0+")
    allow_downgrade: bool = field("0")
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    results: list[UpdatableFeatureResult] = field("0-1", ignorable=True)


class UpdatableFeatureResult(Message):
    feature: str = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
