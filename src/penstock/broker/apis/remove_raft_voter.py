"""RemoveRaftVoter: a controller leaves the voters. Version 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.metadata.forwarding import pass_on
from penstock.broker.metadata.quorum_messages import answer_by_quorum
from penstock.broker.metadata.raft_wire import refusal_to_wire
from penstock.broker.net.request import Request
from penstock.protocol.apis import ApiKey
from penstock.protocol.declaration import Message
from penstock.security.authorizer import Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

API_KEY = ApiKey.REMOVE_RAFT_VOTER
VERSIONS = (0, 0)


def handle(node: Node, request: Request, message: Message) -> Message | None:
    if pass_on(node, request, lambda error: refusal_to_wire(message, error.code, error.message)):
        return None
    return answer_by_quorum(node, request, message, Operation.ALTER)
