"""AlterConfigs, the older API: resets all settings that a request does not name to their defaults. Versions 0-2."""

from __future__ import annotations

from penstock.broker.apis.certificate_changes import check_first
from penstock.broker.apis.config_resources import cordoning_refusal, names_of, refused, split_by_permission
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import KafkaError
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

VERSIONS = (0, 2)


def handle(services: AdminServices, request: Request, message: AlterConfigsRequest) -> AlterConfigsResponse | None:
    def alter(controller: Controller) -> Result[AlterConfigsResponse]:
        allowed, forbidden = split_by_permission(request, message.resources)
        result = controller.alter_configs(AlterConfigsRequest(resources=allowed, validate_only=message.validate_only))
        result.response.responses += forbidden
        return result

    def refusal(error: KafkaError) -> AlterConfigsResponse:
        return AlterConfigsResponse(responses=[refused(resource, error) for resource in message.resources])

    error = cordoning_refusal(services, message.resources)
    if error is not None:
        return refusal(error)

    def forward(request: Request) -> None:
        services.forwarding.forward(request, alter, refusal, about=names_of(message.resources))

    check_first(services, request, message.resources, forward, refusal)
    return None
