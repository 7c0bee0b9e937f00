"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single settings. Versions 0-1.

Log levels belong to this node and are changed here; the controller changes everything else. Clients do not send both
in one request.
"""

from __future__ import annotations

from penstock.broker import loggers
from penstock.broker.apis.certificate_changes import check_first
from penstock.broker.apis.config_resources import (
    cordoning_refusal,
    names_of,
    refusal_of,
    refused,
    split_by_permission,
)
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.metadata.image import ResourceType
from penstock.model.errors import KafkaError
from penstock.protocol.messages.alter_configs import AlterConfigsResourceResponse
from penstock.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.security.authorizer import Operation

VERSIONS = (0, 1)


def handle(
    services: AdminServices, request: Request, message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse | None:
    if message.resources and all(each.resource_type == ResourceType.BROKER_LOGGER for each in message.resources):
        response = IncrementalAlterConfigsResponse()
        for resource in message.resources:
            try:
                _alter_loggers(services, request, resource, validate_only=message.validate_only)
                answer = AlterConfigsResourceResponse(
                    error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
                )
            except KafkaError as error:
                answer = refused(resource, error)
            response.responses.append(answer)
        return response

    def alter(controller: Controller) -> Result[IncrementalAlterConfigsResponse]:
        allowed, forbidden = split_by_permission(request, message.resources)
        result = controller.incremental_alter_configs(
            IncrementalAlterConfigsRequest(resources=allowed, validate_only=message.validate_only)
        )
        result.response.responses += forbidden
        return result

    def refusal(error: KafkaError) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(responses=[refused(resource, error) for resource in message.resources])

    cordoning = cordoning_refusal(services, message.resources)
    if cordoning is not None:
        return refusal(cordoning)

    def forward(request: Request) -> None:
        services.forwarding.forward(request, alter, refusal, about=names_of(message.resources))

    check_first(services, request, message.resources, forward, refusal)
    return None


def _alter_loggers(
    services: AdminServices, request: Request, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    error = refusal_of(request, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
    if error is not None:
        raise error
    loggers.check_node(services.settings.static.node_id, resource.resource_name)
    loggers.alter(resource.configs, validate_only=validate_only)
