"""EndQuorumEpoch: a leader resigns, and names who should follow. Versions 0-1: 1 adds directory ids and endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.net.request import Request
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.END_QUORUM_EPOCH
VERSIONS = (0, 1)


def handle(node: Node, request: Request, message: Message) -> Message | None:
    return answer_by_quorum(node, request, message)
