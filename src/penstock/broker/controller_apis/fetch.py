"""Fetch, of the metadata log.

Versions 12-18: 13 has topic ids, 17 directory ids, 18 the high watermark that a replica knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.net.request import Request
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.FETCH
VERSIONS = (12, 18)


def handle(node: Node, request: Request, message: Message) -> Message | None:
    return answer_by_quorum(node, request, message)
