"""ACLs: who may do what to which resources, from which hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, TypeVar

from penstock.client.errors import raise_for
from penstock.client.wire.cluster import Cluster
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from penstock.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.security.acls import PatternType, Permission, name_of
from penstock.security.authorizer import CLUSTER, Operation, ResourceKind

Kind = TypeVar("Kind", bound=IntEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One ACL. Types are Kafka's names: READ, TOPIC, PREFIXED, ALLOW; upper or lower case, with - or _."""

    principal: str  # User:alice; User:* is everybody
    operation: str
    resource_type: str
    resource: str = CLUSTER.name
    pattern: str = PatternType.LITERAL.name
    host: str = "*"  # an address, or a range such as 10.0.0.0/8 (metadata.version 4.4-IV1)
    permission: str = Permission.ALLOW.name


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects ACLs: None leaves a field open. The pattern MATCH selects all patterns that cover the resource."""

    principal: str | None = None
    operation: str | None = None
    resource_type: str | None = None
    resource: str | None = None
    pattern: str | None = None
    host: str | None = None
    permission: str | None = None


class Acls:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, wanted: AclFilter = AclFilter()) -> list[Acl]:  # noqa: B008 - it is immutable
        """Return the ACLs that the filter selects, sorted by resource and principal."""
        response = self._cluster.request(DescribeAclsRequest(**_filter_fields(wanted)), DescribeAclsResponse)
        raise_for(response.error_code, response.error_message, "cannot list the ACLs")
        return _sorted(_acl(resource, entry) for resource in response.resources for entry in resource.acls)

    def create(self, acls: Iterable[Acl]) -> None:
        """Create ACLs; those that exist already stay. The first refused one is raised; the others are created."""
        wanted = list(acls)
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=number_of(ResourceKind, acl.resource_type),
                    resource_name=acl.resource,
                    resource_pattern_type=number_of(PatternType, acl.pattern),
                    principal=acl.principal,
                    host=acl.host,
                    operation=number_of(Operation, acl.operation),
                    permission_type=number_of(Permission, acl.permission),
                )
                for acl in wanted
            ]
        )
        response = self._cluster.request(request, CreateAclsResponse)
        for acl, result in zip(wanted, response.results, strict=True):
            raise_for(result.error_code, result.error_message, f"cannot create the ACL for {acl.principal}")

    def delete(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Delete the ACLs that any of the filters selects; returns them."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(each)) for each in filters])
        deleted: set[Acl] = set()
        for result in self._cluster.request(request, DeleteAclsResponse).filter_results:
            raise_for(result.error_code, result.error_message, "cannot delete ACLs")
            for matching in result.matching_acls:
                raise_for(matching.error_code, matching.error_message, "cannot delete an ACL")
                deleted.add(_acl(matching, matching))
        return _sorted(deleted)


def number_of(kind: type[Kind], name: str | None) -> int:
    """The number of a type by its name; ANY if there is none. ValueError for an unknown name."""
    if name is None:
        return 1
    found = kind.__members__.get(name.upper().replace("-", "_"))
    if found is None or found == 0:
        known = ", ".join(each.name for each in kind if each > 0)
        raise ValueError(f"{name!r} is not one of {known}")
    return found


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": number_of(ResourceKind, wanted.resource_type),
        "resource_name_filter": wanted.resource,
        "pattern_type_filter": number_of(PatternType, wanted.pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": number_of(Operation, wanted.operation),
        "permission_type": number_of(Permission, wanted.permission),
    }


def _acl(resource: DescribeAclsResource | DeleteAclsMatchingAcl, entry: AclDescription | DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        principal=entry.principal,
        operation=name_of(Operation, entry.operation),
        resource_type=name_of(ResourceKind, resource.resource_type),
        resource=resource.resource_name,
        pattern=name_of(PatternType, resource.pattern_type),
        host=entry.host,
        permission=name_of(Permission, entry.permission_type),
    )


def _sorted(acls: Iterable[Acl]) -> list[Acl]:
    order = attrgetter("resource_type", "resource", "pattern", "principal", "permission", "operation", "host")
    return sorted(acls, key=order)
