"""Requests that change the metadata: handed to the controller, answered when what they did is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.broker.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import KafkaError
from penstock.protocol.declaration import Message

if TYPE_CHECKING:
    from penstock.broker.node import Node

Response = TypeVar("Response", bound=Message)


def forward(
    node: Node,
    request: Request,
    operation: Callable[[Controller], Result[Response]],
    refusal: Callable[[KafkaError], Response],
) -> None:
    """`refusal` makes the response for a request that is refused as a whole."""
    answer = request.park()

    def done(outcome: Response | KafkaError) -> None:
        answer(refusal(outcome) if isinstance(outcome, KafkaError) else outcome)

    node.quorum.submit(operation, done)
