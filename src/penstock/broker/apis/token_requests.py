"""What the APIs of delegation tokens have in common: who may use them, and how they change tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.security.principal import ANONYMOUS

Response = TypeVar("Response", bound=Message)


def may_use_tokens(request: Request) -> bool:
    """Whether the client is authenticated, and by something better than a token."""
    return request.principal != ANONYMOUS and not request.is_token_authenticated


def change_token(
    services: AdminServices,
    request: Request,
    change: Callable[[Controller], Result[Response]],
    refusal: Callable[[KafkaError], Response],
) -> Response | None:
    """Let the controller change a token; returns the refusal if the client may not use tokens."""
    if not may_use_tokens(request):
        return refusal(KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    services.forwarding.forward(request, change, refusal, about=["a delegation token"])
    return None
