"""CreateAcls: creates ACLs, each with its own outcome. Versions 1-3."""

from __future__ import annotations

from penstock.broker.apis.acl_requests import change_acls, closes
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.acls import acl_of
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import KafkaError
from penstock.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

VERSIONS = (1, 3)


def handle(services: AdminServices, request: Request, message: CreateAclsRequest) -> CreateAclsResponse | None:
    def refusal(error: KafkaError) -> CreateAclsResponse:
        result = AclCreationResult(error_code=error.code, error_message=error.message)
        return CreateAclsResponse(results=[result] * len(message.creations))

    def create(controller: Controller) -> Result[CreateAclsResponse]:
        return controller.create_acls(message)

    for creation in message.creations:
        numbers = (creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type)
        if closes(request, numbers):
            return None
    return change_acls(services, request, create, refusal, about=(str(acl_of(each)) for each in message.creations))
