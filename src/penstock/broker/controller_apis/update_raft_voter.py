"""UpdateRaftVoter: a voter reports changed endpoints or supported versions. Version 0."""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.net.request import Request
from penstock.protocol.declaration import Message

VERSIONS = (0, 0)


def handle(services: ControllerServices, request: Request, message: Message) -> Message | None:
    return answer_by_quorum(services.quorum, request, message)
