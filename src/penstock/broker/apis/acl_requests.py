"""What the ACL APIs share: they need an authorizer, and requests without any UNKNOWN (0) in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.security.authorizer import CLUSTER, Operation

NO_AUTHORIZER = "No Authorizer is configured."

Response = TypeVar("Response", bound=Message)


def refusal_of(
    services: AdminServices, request: Request, operation: Operation, text: str = NO_AUTHORIZER
) -> KafkaError | None:
    """Why the request is refused as a whole. Clients such as MirrorMaker recognize a cluster without ACLs by
    SECURITY_DISABLED, and continue."""
    if not request.may(operation, CLUSTER):
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not services.settings.static.has_acls:
        return KafkaError(ErrorCode.SECURITY_DISABLED, text)
    return None


def closes(request: Request, numbers: Iterable[int]) -> bool:
    """Close the connection if a type in the request is UNKNOWN, as Kafka does: no client sends that."""
    if all(numbers):
        return False
    request.connection.abort()
    return True


def change_acls(
    services: AdminServices,
    request: Request,
    change: Callable[[Controller], Result[Response]],
    refusal: Callable[[KafkaError], Response],
    *,
    about: Iterable[str],
) -> Response | None:
    """Let the controller change ACLs; returns the refusal if the client may not do so."""
    if services.forwarding.pass_on(request, refusal):
        return None
    error = refusal_of(services, request, Operation.ALTER)
    if error is not None:
        return refusal(error)
    services.forwarding.forward(request, change, refusal, about=about)
    return None
