"""Checks who may read or change the settings of a resource; topics and groups are authorized by their own names.

Only a broker knows its own log directories, so it checks `cordoned.log.dirs` itself before it forwards a request.
Clients send changes for one broker to that broker, so one wrong entry is an error of the whole request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages import alter_configs as legacy
from penstock.protocol.messages import incremental_alter_configs as incremental
from penstock.protocol.messages.alter_configs import AlterConfigsResourceResponse
from penstock.security.authorizer import CLUSTER, Operation, group_resource, topic_resource
from penstock.settings.logs import CORDONED_LOG_DIRS, check_cordoned
from penstock.settings.node import BROKER_SETTINGS

_SUBTRACT = 3

AnyResource = incremental.AlterConfigsResource | legacy.AlterConfigsResource
Resource = TypeVar("Resource", incremental.AlterConfigsResource, legacy.AlterConfigsResource)


def refusal_of(request: Request, operation: Operation, kind: int, name: str) -> KafkaError | None:
    if kind == ResourceType.TOPIC:
        resource, code = topic_resource(name), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif kind == ResourceType.GROUP:
        resource, code = group_resource(name), ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        resource, code = CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if request.may(operation, resource) else KafkaError(code)


def refused(resource: AnyResource, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def split_by_permission(
    request: Request, resources: Iterable[Resource]
) -> tuple[list[Resource], list[AlterConfigsResourceResponse]]:
    """The resources that the client may alter, and the refusals of the others."""
    allowed, forbidden = [], []
    for resource in resources:
        error = refusal_of(request, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        if error is None:
            allowed.append(resource)
        else:
            forbidden.append(refused(resource, error))
    return allowed, forbidden


def names_of(resources: Iterable[AnyResource]) -> list[str]:
    """The resources and the names of their settings, for the audit log; the values may be secret."""
    found = []
    for resource in resources:
        settings = ", ".join(each.name for each in resource.configs)
        found.append(f"{_kind(resource.resource_type)} {resource.resource_name} ({settings})")
    return found


def _kind(number: int) -> str:
    return ResourceType(number).name.lower() if number in set(ResourceType) else "unknown"


def cordoning_refusal(services: AdminServices, resources: Iterable[AnyResource]) -> KafkaError | None:
    """The reason why this broker cannot cordon the requested directories."""
    for resource in resources:
        if resource.resource_type != ResourceType.BROKER or resource.resource_name != str(
            services.settings.static.node_id
        ):
            continue
        for config in resource.configs:
            removes = isinstance(config, incremental.AlterableConfig) and config.config_operation == _SUBTRACT
            if config.name == CORDONED_LOG_DIRS and config.value is not None and not removes:
                try:
                    check_cordoned(
                        BROKER_SETTINGS[CORDONED_LOG_DIRS].parse(config.value), services.settings.now.log_directories
                    )
                except KafkaError as error:
                    return KafkaError(ErrorCode.INVALID_REQUEST, error.message)
    return None
