"""AddRaftVoter: adds a controller to the voters. Versions 0-1: 1 can be answered before the change is committed."""

from __future__ import annotations

from penstock.broker.apis.services import AdminServices
from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.metadata.raft_wire import refusal_to_wire
from penstock.broker.net.request import Request
from penstock.protocol.declaration import Message
from penstock.security.authorizer import Operation

VERSIONS = (0, 1)


def handle(services: AdminServices, request: Request, message: Message) -> Message | None:
    if services.forwarding.pass_on(request, lambda error: refusal_to_wire(message, error.code, error.message)):
        return None
    return answer_by_quorum(services.quorum, request, message, Operation.ALTER)
