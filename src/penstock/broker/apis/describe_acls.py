"""DescribeAcls: refused, as Kafka's own tools expect of a cluster without an authorizer. Versions 1-3."""

from __future__ import annotations

from penstock.broker.apis.acl_refusals import refusal_of
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.security.authorizer import Operation

VERSIONS = (1, 3)


def handle(services: AdminServices, request: Request, message: DescribeAclsRequest) -> DescribeAclsResponse:
    refusal = refusal_of(request, Operation.DESCRIBE)
    return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message)
