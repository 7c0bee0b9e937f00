"""Passes requests of the quorum protocol to the Raft state machine, and returns its answers."""

from __future__ import annotations

from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.raft_wire import answer_to_wire, refusal_to_wire, request_from_wire
from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.raft.messages import Answer
from penstock.security.authorizer import CLUSTER, Operation


def answer_by_quorum(
    quorum: MetadataQuorum, request: Request, message: Message, operation: Operation = Operation.CLUSTER_ACTION
) -> Message | None:
    if not request.may(operation, CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refusal_to_wire(message, code, code.text)
    try:
        asked = request_from_wire(message)
    except KafkaError as error:
        return refusal_to_wire(message, error.code, error.message)
    answer = request.park()
    listener = quorum.listener

    def done(outcome: Answer) -> None:
        answer(answer_to_wire(message, outcome, listener))

    quorum.request(asked, done)
    return None
