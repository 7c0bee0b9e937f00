from __future__ import annotations

import pytest

from penstock.controller.features import UpgradeType
from penstock.metadata.cluster import features_message
from penstock.metadata.features import SUPPORTED_FEATURES, refused_because, why_not_lead
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.controller_registration import ControllerRegistrationRequest
from penstock.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    FeatureLevelRecord,
)
from penstock.protocol.messages.unregister_controller import UnregisterControllerRequest
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.simulator.stories.controller_world import World


def update(
    world: World, *updates: tuple[str, int, int], validate_only: bool = False, voters: tuple[int, ...] = ()
) -> int:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    response = world.do(world.controller.update_features(request, voters))
    assert all(result.error_code == response.error_code for result in response.results)
    return int(response.error_code)


UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


@pytest.mark.parametrize(
    ("name", "level", "kind", "code"),
    [
        ("metadata.version", 33, UP, ErrorCode.NONE),
        ("metadata.version", 34, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 32, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 32, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 32, UNSAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 7, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", -1, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 33, 7, ErrorCode.INVALID_UPDATE_VERSION),
        ("kraft.version", 1, UP, ErrorCode.NONE),
        ("kraft.version", 0, SAFE, ErrorCode.INVALID_UPDATE_VERSION),
        ("share.version", 2, UP, ErrorCode.NONE),
        ("share.version", 3, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("share.version", 0, SAFE, ErrorCode.NONE),
        ("streams.version", 1, UP, ErrorCode.NONE),
        ("streams.version", 2, UP, ErrorCode.INVALID_UPDATE_VERSION),
        ("streams.version", 0, SAFE, ErrorCode.NONE),
    ],
)
def test_levels(name: str, level: int, kind: int, code: ErrorCode) -> None:
    assert update(World(), (name, level, kind)) == code


def test_going_up_and_down_where_nothing_is_lost() -> None:
    world = World(brokers=0)
    world.commit([FeatureLevelRecord(name="metadata.version", feature_level=29)])
    assert update(world, ("metadata.version", 25, SAFE)) == 0
    assert world.image.metadata_version == 25
    assert update(world, ("metadata.version", 33, SAFE)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(world, ("metadata.version", 33, UP), validate_only=True) == 0
    assert world.image.metadata_version == 25
    assert update(world, ("metadata.version", 33, UP)) == 0
    assert world.image.metadata_version == 33


def test_all_or_none() -> None:
    world = World(brokers=0)
    world.commit([FeatureLevelRecord(name="metadata.version", feature_level=27)])
    assert update(world, ("metadata.version", 33, UP), ("no.such", 1, UP)) == ErrorCode.INVALID_UPDATE_VERSION
    assert world.image.metadata_version == 27
    twice = ("metadata.version", 33, UP)
    assert update(world, twice, twice) == ErrorCode.INVALID_REQUEST


def test_voters_that_have_not_registered_may_not_support_it() -> None:
    world = World(brokers=0)
    world.commit([FeatureLevelRecord(name="metadata.version", feature_level=29)])
    voters = (world.controller.settings.node_id, 3001)
    assert update(world, ("metadata.version", 33, UP), voters=voters) == ErrorCode.INVALID_UPDATE_VERSION
    registration = ControllerRegistrationRequest(controller_id=3001, features=features_message(SUPPORTED_FEATURES))
    world.do(world.controller.register_controller(registration))
    assert update(world, ("metadata.version", 33, UP), voters=voters) == ErrorCode.NONE


def test_controllers_that_left_the_quorum_are_unregistered() -> None:
    world = World(brokers=0)

    def unregister(controller_id: int) -> ErrorCode:
        request = UnregisterControllerRequest(controller_id=controller_id)
        try:
            return ErrorCode(world.do(world.controller.unregister_controller(request, (3000, 3001))).error_code)
        except KafkaError as error:
            return error.code

    for controller_id in (3001, 3002):
        world.do(world.controller.register_controller(ControllerRegistrationRequest(controller_id=controller_id)))
    assert unregister(3001) == ErrorCode.INVALID_REQUEST  # it votes
    assert unregister(3003) == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    assert unregister(3002) == ErrorCode.NONE
    assert list(world.image.controllers) == [3001]
    assert unregister(3002) == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    world.commit([FeatureLevelRecord(name="metadata.version", feature_level=32)])
    assert unregister(3002) == ErrorCode.UNSUPPORTED_VERSION


def test_a_refusal_names_the_feature_and_the_versions_of_both_sides() -> None:
    finalized = {"metadata.version": 99, "group.version": 1, "tomorrow.version": 2}
    assert refused_because(finalized) == [
        "the cluster has finalized metadata.version at version 99, and this node serves versions 25-33",
        "the cluster has finalized tomorrow.version at version 2, and this node serves no version of it",
    ]
    assert why_not_lead(finalized) == refused_because(finalized)[0]
    assert why_not_lead({"metadata.version": 25, "tomorrow.version": 2}) is None
    assert why_not_lead({}) is None


def test_a_new_controller_aborts_the_transaction_of_the_one_before() -> None:
    world = World()
    features = world.image.features
    world.commit([BeginTransactionRecord(), FeatureLevelRecord(name="metadata.version", feature_level=99)])
    assert world.image.features == features
    world.run(lambda controller: controller.activate([]))
    assert world.image.transaction is None and world.image.features == features
    assert isinstance(world.batches[-1][0], AbortTransactionRecord)
