"""FetchSnapshot: a part of a snapshot of the metadata. Versions 0-1: 1 adds the directory id of the replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.net.request import Request
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.FETCH_SNAPSHOT
VERSIONS = (0, 1)


def handle(node: Node, request: Request, message: Message) -> Message | None:
    return answer_by_quorum(node, request, message)
