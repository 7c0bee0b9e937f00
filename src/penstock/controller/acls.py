"""ACLs: creation entry by entry, deletion by filters.

To create an ACL that exists already succeeds and changes nothing. Each entry, and each filter, has its own outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.controller.result import MAX_RECORDS_PER_REQUEST, Result
from penstock.metadata.features import METADATA_4_4_IV1
from penstock.metadata.image import MetadataImage
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.protocol.messages.metadata_records import RemoveAccessControlEntryRecord
from penstock.security.acls import Acl, AclFilter, PatternType, Permission, name_of
from penstock.security.authorizer import CLUSTER, Operation, ResourceKind
from penstock.security.hosts import parse_range

_KINDS: Final = frozenset(ResourceKind) - {ResourceKind.UNKNOWN, ResourceKind.ANY}
_OPERATIONS: Final = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, new_id: Callable[[], Uuid]
) -> Result[CreateAclsResponse]:
    records: list[Message] = []
    results: list[AclCreationResult] = []
    created: set[Acl] = set()
    for creation in request.creations:
        try:
            acl = acl_of(creation)
            check_new(acl, image.metadata_version)
        except KafkaError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.message))
            continue
        if acl not in image.acls.ids and acl not in created:
            created.add(acl)
            records.append(acl.to_record(new_id()))
        results.append(AclCreationResult())
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    return Result(records, CreateAclsResponse(results=results))


def acl_of(creation: AclCreation) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def check_new(acl: Acl, metadata_version: int) -> None:
    """Check that the ACL can be stored: every field has one definite meaning."""
    if acl.kind == ResourceKind.CLUSTER and acl.name != CLUSTER.name:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
    if not acl.name:
        raise _invalid("Invalid empty resource name")
    if acl.kind not in _KINDS:
        raise _invalid(f"Invalid resourceType {name_of(ResourceKind, acl.kind)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {name_of(PatternType, acl.pattern_type)}")
    if acl.operation not in _OPERATIONS:
        raise _invalid(f"Invalid operation {name_of(Operation, acl.operation)}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {name_of(Permission, acl.permission)}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    _check_host(acl.host, metadata_version)


def _check_host(host: str, metadata_version: int) -> None:
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if metadata_version < METADATA_4_4_IV1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        )
    try:
        parse_range(host)
    except ValueError as error:
        raise _invalid(f"Invalid CIDR notation '{host}': {error}") from None


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Result[DeleteAclsResponse]:
    """Several filters may select the same ACL: each reports it, and it is deleted once."""
    deleted: dict[Uuid, None] = {}
    results: list[DeleteAclsFilterResult] = []
    for each in request.filters:
        try:
            wanted = filter_of(each)
            check_filter(wanted)
        except KafkaError as error:
            results.append(DeleteAclsFilterResult(error_code=error.code, error_message=error.message))
            continue
        matching = {acl_id: acl for acl_id, acl in image.acls.entries.items() if wanted.matches(acl)}
        deleted.update(dict.fromkeys(matching))
        if len(deleted) > MAX_RECORDS_PER_REQUEST:
            # The answer would be so long that a part that failed is easily missed: the whole request fails.
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation.",
            )
        results.append(
            DeleteAclsFilterResult(error_message=None, matching_acls=[_matching(acl) for acl in matching.values()])
        )
    records: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in deleted]
    return Result(records, DeleteAclsResponse(filter_results=results))


def filter_of(wanted: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def check_filter(wanted: AclFilter) -> None:
    if wanted.kind not in (*_KINDS, ResourceKind.ANY) or name_of(PatternType, wanted.pattern_type) == "UNKNOWN":
        raise _invalid("Unknown patternFilter.")
    if wanted.operation not in (*_OPERATIONS, Operation.ANY) or name_of(Permission, wanted.permission) == "UNKNOWN":
        raise _invalid("Unknown entryFilter.")


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.kind,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
