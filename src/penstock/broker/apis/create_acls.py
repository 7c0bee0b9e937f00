"""CreateAcls: refused, each entry by itself, as there is no authorizer to heed them. Versions 1-3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.apis.acl_refusals import refusal_of
from penstock.broker.net.request import Request
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.security.authorizer import Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.CREATE_ACLS
VERSIONS = (1, 3)


def handle(node: Node, request: Request, message: CreateAclsRequest) -> CreateAclsResponse:
    refusal = refusal_of(request, Operation.ALTER)
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=refusal.code, error_message=refusal.message) for _ in message.creations]
    )
