"""UpdateRaftVoter: a voter tells where it listens and what it supports, if that has changed. Version 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.net.request import Request
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.UPDATE_RAFT_VOTER
VERSIONS = (0, 0)


def handle(node: Node, request: Request, message: Message) -> Message | None:
    return answer_by_quorum(node, request, message)
