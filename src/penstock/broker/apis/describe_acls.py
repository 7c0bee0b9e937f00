"""DescribeAcls: the ACLs that a filter selects, grouped by resource. Versions 1-3."""

from __future__ import annotations

from penstock.broker.apis.acl_requests import closes, refusal_of
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.security.acls import AclFilter
from penstock.security.authorizer import Operation

VERSIONS = (1, 3)


def handle(services: AdminServices, request: Request, message: DescribeAclsRequest) -> DescribeAclsResponse | None:
    numbers = (
        message.resource_type_filter,
        message.pattern_type_filter,
        message.operation,
        message.permission_type,
    )
    if closes(request, numbers):
        return None
    error = refusal_of(services, request, Operation.DESCRIBE, "No Authorizer is configured on the broker")
    if error is not None:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    wanted = AclFilter(
        message.resource_type_filter,
        message.resource_name_filter,
        message.pattern_type_filter,
        message.principal_filter,
        message.host_filter,
        message.operation,
        message.permission_type,
    )
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in filter(wanted.matches, sorted(services.quorum.image.acls)):
        resource = resources.setdefault(
            (acl.kind, acl.name, acl.pattern_type),
            DescribeAclsResource(resource_type=acl.kind, resource_name=acl.name, pattern_type=acl.pattern_type),
        )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=list(resources.values()))
