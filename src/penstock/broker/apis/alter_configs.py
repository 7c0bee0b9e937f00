"""AlterConfigs, the older API: resets all settings that a request does not name to their defaults. Versions 0-2."""

from __future__ import annotations

from penstock.broker.apis.config_resources import cordoning_refusal, names_of, refusal_of
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import KafkaError
from penstock.protocol.apis import ApiKey
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock.security.authorizer import Operation

API_KEY = ApiKey.ALTER_CONFIGS
VERSIONS = (0, 2)


def handle(services: AdminServices, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse | None:
    def refused(resource: AlterConfigsResource, error: KafkaError) -> AlterConfigsResourceResponse:
        return AlterConfigsResourceResponse(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    def alter(controller: Controller) -> Result[AlterConfigsResponse]:
        allowed, forbidden = [], []
        for resource in message.resources:
            error = refusal_of(request, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
            if error is None:
                allowed.append(resource)
            else:
                forbidden.append(refused(resource, error))
        result = controller.alter_configs(AlterConfigsRequest(resources=allowed, validate_only=message.validate_only))
        result.response.responses += forbidden
        return result

    def refusal(error: KafkaError) -> AlterConfigsResponse:
        return AlterConfigsResponse(responses=[refused(resource, error) for resource in message.resources])

    error = cordoning_refusal(services, message.resources)
    if error is not None:
        return refusal(error)
    services.forwarding.forward(request, alter, refusal, about=names_of(message.resources))
    return None
