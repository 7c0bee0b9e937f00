"""DeleteAcls: refused, filter by filter, because there is no authorizer that stores ACLs. Versions 1-3."""

from __future__ import annotations

from penstock.broker.apis.acl_refusals import refusal_of
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.security.authorizer import Operation

VERSIONS = (1, 3)


def handle(services: AdminServices, request: Request, message: DeleteAclsRequest) -> DeleteAclsResponse:
    refusal = refusal_of(request, Operation.ALTER)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=refusal.code, error_message=refusal.message) for _ in message.filters
        ]
    )
