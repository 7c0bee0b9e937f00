"""DeleteAcls: deletes the ACLs that filters select, and returns them. Versions 1-3."""

from __future__ import annotations

from penstock.broker.apis.acl_requests import change_acls, closes
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.acls import filter_of
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import KafkaError
from penstock.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

VERSIONS = (1, 3)


def handle(services: AdminServices, request: Request, message: DeleteAclsRequest) -> DeleteAclsResponse | None:
    def refusal(error: KafkaError) -> DeleteAclsResponse:
        result = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
        return DeleteAclsResponse(filter_results=[result] * len(message.filters))

    def delete(controller: Controller) -> Result[DeleteAclsResponse]:
        return controller.delete_acls(message)

    for each in message.filters:
        numbers = (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
        if closes(request, numbers):
            return None
    return change_acls(services, request, delete, refusal, about=(str(filter_of(each)) for each in message.filters))
