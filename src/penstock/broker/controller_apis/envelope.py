"""Envelope: a request that a broker forwards for one of its clients, with the client's identity. Version 0.

The inner request is handled as if its client had sent it here, and the response goes back as the bytes for that client.
"""

from __future__ import annotations

import ipaddress
import struct

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.metadata.forwarding import PRINCIPAL_VERSION
from penstock.broker.net.request import EnvelopedRequest, Request
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import REQUEST_ELEMENTS_MAX, MalformedMessage, decode, decode_from
from penstock.protocol.frames import read_request_header
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.protocol.messages.principal import DefaultPrincipalData
from penstock.security.authorizer import CLUSTER, Operation
from penstock.security.principal import Principal

VERSIONS = (0, 0)

# Nodes send these only on their own behalf.
NOT_FORWARDABLE = frozenset(
    {
        ApiKey.ENVELOPE,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    }
)


def handle(services: ControllerServices, request: Request, message: EnvelopeRequest) -> EnvelopeResponse | None:
    if not request.may(Operation.CLUSTER_ACTION, CLUSTER):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        header, position = read_request_header(message.request_data, 0)
        route = services.routes.get(header.api_key)
        if route is None or route.api_key in NOT_FORWARDABLE:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not route.min_version <= header.api_version <= route.max_version:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        inner, _ = decode_from(
            API[header.api_key].request, message.request_data, header.api_version, position, REQUEST_ELEMENTS_MAX
        )
        client = _principal(message.request_principal)
    except MalformedMessage:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except ValueError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    enveloped = EnvelopedRequest(
        request.park(),
        client.token_authenticated,
        request.connection,
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        Principal(client.type, client.name),
        services.authorizer,
        message.request_data,
        _host(message.client_host_address),
    )
    response = route.handle(route.services, enveloped, inner)
    if response is not None:
        enveloped.answer(response)
    return None


def _principal(data: bytes | None) -> DefaultPrincipalData:
    """Raises ValueError if the data is not a principal."""
    if data is None or len(data) < 2:
        raise ValueError("no principal")
    (version,) = struct.unpack_from(">h", data)
    if version != PRINCIPAL_VERSION:
        raise ValueError(f"a principal of version {version}")
    try:
        return decode(DefaultPrincipalData, data, version, 2)
    except MalformedMessage as error:
        raise ValueError(str(error)) from error


def _host(address: bytes) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return ""
