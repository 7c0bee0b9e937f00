"""FetchSnapshot: returns a part of a metadata snapshot. Versions 0-1: 1 adds the directory id of the replica."""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.net.request import Request
from penstock.protocol.declaration import Message

VERSIONS = (0, 1)


def handle(services: ControllerServices, request: Request, message: Message) -> Message | None:
    return answer_by_quorum(services.quorum, request, message)
