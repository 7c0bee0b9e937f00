from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.controller.result import MAX_RECORDS_PER_REQUEST
from penstock.metadata.features import METADATA_4_4_IV1, METADATA_4_4_IV2
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.security.acls import Acl, PatternType, Permission
from penstock.security.authorizer import Operation, ResourceKind
from penstock.simulator.stories.controller_world import World

GOOD: dict[str, Any] = {
    "resource_type": ResourceKind.TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": Operation.READ,
    "permission_type": Permission.ALLOW,
}


def creation(**changes: Any) -> AclCreation:
    return AclCreation(**{**GOOD, **changes})


def create(world: World, *creations: AclCreation) -> list[tuple[int, str | None]]:
    response = world.do(world.controller.create_acls(CreateAclsRequest(creations=list(creations))))
    return [(result.error_code, result.error_message) for result in response.results]


def delete(world: World, **changes: Any) -> Any:
    fields = {
        "resource_type_filter": ResourceKind.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**{**fields, **changes})])
    (result,) = world.do(world.controller.delete_acls(request)).filter_results
    return result


def names(world: World) -> list[str]:
    return sorted(acl.name for acl in world.controller.image.acls)


def test_an_acl_that_exists_is_created_again_in_silence() -> None:
    world = World()
    assert create(world, creation(), creation(), creation(host="10.0.0.1")) == [(0, "")] * 3
    before = len(world.batches)
    assert create(world, creation()) == [(0, "")]
    assert len(world.batches) == before
    assert list(world.controller.image.acls) == [
        Acl(2, "orders", 3, "User:alice", "*", 3, 3),
        Acl(2, "orders", 3, "User:alice", "10.0.0.1", 3, 3),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": ResourceKind.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": PatternType.ANY}, "Invalid patternType ANY"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": Permission.ANY}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceKind.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        ({"host": "10.0.0.0/33"}, "Invalid CIDR notation '10.0.0.0/33'"),
        ({"host": "10.0.0.256/8"}, "Invalid CIDR notation"),
        ({"host": "10.0.0/8"}, "Invalid CIDR notation"),
        ({"host": "2001:db8::/129"}, "Invalid CIDR notation"),
        ({"host": "::g/1"}, "Invalid CIDR notation"),
    ],
)
def test_a_bad_entry_leaves_the_others(changes: dict[str, Any], message: str) -> None:
    world = World()
    bad, good = create(world, creation(**changes), creation(resource_name="other"))
    assert bad[0] is ErrorCode.INVALID_REQUEST
    assert bad[1] is not None
    assert bad[1].startswith(message)
    assert good == (0, "")
    assert names(world) == ["other"]


def test_ranges_of_hosts_need_a_metadata_version() -> None:
    world = World()
    assert create(world, creation(host="10.0.0.0/8"), creation(host="2001:db8::/32")) == [(0, "")] * 2
    image = world.controller.image
    world.controller.image = dataclasses.replace(
        image, features={**image.features, "metadata.version": METADATA_4_4_IV1 - 1}
    )
    ((code, message),) = create(world, creation(host="10.1.0.0/16"))
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert message == "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
    assert FeatureLevelRecord(name="metadata.version", feature_level=METADATA_4_4_IV2) in world.batches[0]


def test_filters_delete_what_they_match() -> None:
    world = World()
    prefixed = creation(resource_name="ord", resource_pattern_type=PatternType.PREFIXED)
    create(world, creation(), creation(resource_name="*"), prefixed, creation(resource_name="other"))
    result = delete(
        world,
        resource_type_filter=ResourceKind.TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=PatternType.MATCH,
    )
    assert (result.error_code, result.error_message) == (0, None)
    assert sorted(acl.resource_name for acl in result.matching_acls) == ["*", "ord", "orders"]
    assert names(world) == ["other"]
    assert delete(world, principal_filter="User:bob").matching_acls == []
    assert [acl.resource_name for acl in delete(world).matching_acls] == ["other"]
    assert names(world) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type_filter": 99}, "Unknown patternFilter."),
        ({"pattern_type_filter": 99}, "Unknown patternFilter."),
        ({"operation": 99}, "Unknown entryFilter."),
        ({"permission_type": 99}, "Unknown entryFilter."),
    ],
)
def test_a_filter_of_unknown_types_deletes_nothing(changes: dict[str, Any], message: str) -> None:
    world = World()
    create(world, creation())
    result = delete(world, **changes)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert names(world) == ["orders"]


def test_two_filters_delete_an_acl_once() -> None:
    world = World()
    create(world, creation())
    fields: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "operation": 1,
    }
    one = DeleteAclsFilter(**fields, principal_filter=None, host_filter=None, permission_type=1)
    response = world.do(world.controller.delete_acls(DeleteAclsRequest(filters=[one, one])))
    assert [len(result.matching_acls) for result in response.filter_results] == [1, 1]
    assert names(world) == []


def test_a_request_has_a_limit() -> None:
    world = World()
    many = [creation(resource_name=f"t{number}") for number in range(MAX_RECORDS_PER_REQUEST + 1)]
    with pytest.raises(KafkaError, match="excessively large"):
        create(world, *many)
    create(world, *many[:-1])
    create(world, many[-1])
    with pytest.raises(KafkaError, match="Cannot remove more than 10000 acls"):
        delete(world)
