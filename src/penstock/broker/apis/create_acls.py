"""CreateAcls: refused, entry by entry, because there is no authorizer to apply ACLs. Versions 1-3."""

from __future__ import annotations

from penstock.broker.apis.acl_refusals import refusal_of
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.security.authorizer import Operation

VERSIONS = (1, 3)


def handle(services: AdminServices, request: Request, message: CreateAclsRequest) -> CreateAclsResponse:
    refusal = refusal_of(request, Operation.ALTER)
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=refusal.code, error_message=refusal.message) for _ in message.creations]
    )
