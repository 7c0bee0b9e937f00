"""StreamsGroupTopologyDescriptionUpdate: refused, as by a Kafka broker without a plug-in that stores descriptions.

Version 0. No answer to a heartbeat asks for a description, so no client sends this of its own accord.
"""

from __future__ import annotations

from penstock.broker.apis.services import GroupServices
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from penstock.security.authorizer import Operation, group_resource

VERSIONS = (0, 0)


def handle(
    services: GroupServices, request: Request, message: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    may = request.may(Operation.READ, group_resource(message.group_id))
    code = ErrorCode.UNSUPPORTED_VERSION if may else ErrorCode.GROUP_AUTHORIZATION_FAILED
    text = "This broker does not store descriptions of topologies." if may else None
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, error_message=text)
