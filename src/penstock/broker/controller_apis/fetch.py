"""Fetch of the metadata log, by the other nodes of the cluster.

Versions 12-18: 13 adds topic ids, 17 directory ids, 18 the high watermark that a replica knows.
"""

from __future__ import annotations

from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.net.request import Request
from penstock.protocol.declaration import Message

VERSIONS = (12, 18)


def handle(services: ControllerServices, request: Request, message: Message) -> Message | None:
    return answer_by_quorum(services.quorum, request, message)
