from __future__ import annotations

import pytest

from penstock.controller.features import UpgradeType
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.simulator.stories.controller_world import World


def update(world: World, *updates: tuple[str, int, int], validate_only: bool = False) -> int:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    response = world.do(world.controller.update_features(request))
    assert all(result.error_code == response.error_code for result in response.results)
    return int(response.error_code)


UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


@pytest.mark.parametrize(
    ("name", "level", "kind", "code"),
    [
        ("metadata.version", 32, UP, ErrorCode.NONE),
        ("metadata.version", 33, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 31, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 31, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 31, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 7, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", -1, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 32, 7, ErrorCode.INVALID_UPDATE_VERSION),
        ("kraft.version", 1, UP, ErrorCode.NONE),
        ("kraft.version", 0, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("share.version", 2, UP, ErrorCode.NONE),
        ("share.version", 3, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("share.version", 0, SAFE, ErrorCode.NONE),
        ("streams.version", 1, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("streams.version", 0, UP, ErrorCode.NONE),
    ],
)
def test_levels(name: str, level: int, kind: int, code: ErrorCode) -> None:
    assert update(World(), (name, level, kind)) == code


def test_going_up_and_down_where_nothing_is_lost() -> None:
    world = World(brokers=0)
    world.commit([FeatureLevelRecord(name="metadata.version", feature_level=29)])
    assert update(world, ("metadata.version", 25, SAFE)) == 0
    assert world.image.metadata_version == 25
    assert update(world, ("metadata.version", 32, SAFE)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, ("metadata.version", 32, UP), validate_only=True) == 0
    assert world.image.metadata_version == 25
    assert update(world, ("metadata.version", 32, UP)) == 0
    assert world.image.metadata_version == 32


def test_all_or_none() -> None:
    world = World(brokers=0)
    world.commit([FeatureLevelRecord(name="metadata.version", feature_level=27)])
    assert update(world, ("metadata.version", 32, UP), ("no.such", 1, UP)) == ErrorCode.INVALID_UPDATE_VERSION
    assert world.image.metadata_version == 27
    twice = ("metadata.version", 32, UP)
    assert update(world, twice, twice) == ErrorCode.INVALID_REQUEST
