"""DescribeConfigs: all settings of topics, brokers, groups, client metrics and loggers, with value and source.

Versions 1-4: 3 adds types and documentation.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker import loggers
from penstock.broker.apis.config_resources import refusal_of
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.metadata.image import ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.topics import check_topic_name
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock.security.authorizer import Operation
from penstock.settings.explain import (
    Explained,
    explain_broker,
    explain_broker_defaults,
    explain_client_metrics,
    explain_group,
    explain_topic,
)

VERSIONS = (1, 4)

RESOURCES_MAX = 10_000  # naming a resource takes a few bytes, describing it kilobytes


def handle(
    services: AdminServices, request: Request, message: DescribeConfigsRequest
) -> Generator[None, None, DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    for number, resource in enumerate(message.resources):
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if number >= RESOURCES_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {RESOURCES_MAX} resources in one request")
            for explained in _explain(services, request, resource):
                result.configs.append(_entry(explained, message.include_synonyms, message.include_documentation))
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        response.results.append(result)
        yield
    return response


def _explain(services: AdminServices, request: Request, resource: DescribeConfigsResource) -> list[Explained]:
    kind = resource.resource_type
    name = resource.resource_name
    keys = resource.configuration_keys or None  # an empty list means all, like null
    refusal = refusal_of(request, Operation.DESCRIBE_CONFIGS, kind, name)
    if refusal is not None:
        raise refusal
    if kind == ResourceType.TOPIC:
        check_topic_name(name)
        if services.quorum.image.topics.by_name(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return explain_topic(services.quorum.image.topic_config(name), services.settings.layers, keys)
    if kind == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return explain_group(services.quorum.image.config(kind, name), services.settings.layers, keys)
    if kind == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return explain_client_metrics(services.quorum.image.config(kind, name), keys)
    if kind == ResourceType.BROKER_LOGGER:
        loggers.check_node(services.settings.static.node_id, name)
        return loggers.explain(keys)
    if kind == ResourceType.BROKER:
        if not name:
            return explain_broker_defaults(services.settings.layers.cluster, keys)
        if name != str(services.settings.static.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {services.settings.static.node_id}, which cannot tell the settings of {name!r}",
            )
        return explain_broker(services.settings.layers, keys)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no settings here")


def _entry(explained: Explained, with_synonyms: bool, with_documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=explained.name,
        value=explained.value,
        read_only=explained.read_only,
        config_source=explained.source,
        is_sensitive=explained.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (explained.synonyms if with_synonyms else ())
        ],
        config_type=explained.type,
        documentation=explained.documentation if with_documentation else None,
    )
