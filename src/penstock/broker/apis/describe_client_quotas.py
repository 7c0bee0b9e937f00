"""DescribeClientQuotas: the quotas of the entities that match a filter. Versions 0-1."""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from penstock.quotas.filters import Component, matching
from penstock.security.authorizer import CLUSTER, Operation

VERSIONS = (0, 1)


def handle(
    services: AdminServices, request: Request, message: DescribeClientQuotasRequest
) -> Generator[None, None, DescribeClientQuotasResponse]:
    quotas = services.quorum.image.client_quotas
    components = [Component(each.entity_type, each.match_type, each.match) for each in message.components]
    try:
        if not request.may(Operation.DESCRIBE_CONFIGS, CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        found = matching(quotas, components, strict=message.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.detail, entries=None)
    entries = []
    for entity in found:
        entries.append(
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas[entity].items())],
            )
        )
        yield
    return DescribeClientQuotasResponse(error_message=None, entries=entries)
