"""Forwards requests that change metadata, or query the controller, to the active controller.

They are answered when their changes are committed. The active controller handles them itself. Any other broker forwards
the unchanged request in an Envelope that names the client; the response comes back as bytes and is sent unchanged. If
the controller changes meanwhile, the request is forwarded again. As with every request that got no answer, it may have
been carried out already.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.net import audit
from penstock.broker.net.peers import PeerFailed
from penstock.broker.net.request import LocalRequest, Request
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.codec import encode, join
from penstock.protocol.declaration import Message
from penstock.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.protocol.messages.principal import DefaultPrincipalData
from penstock.security.authorizer import CLUSTER, Operation
from penstock.security.principal import Principal
from penstock.settings.live import LiveSettings

logger = logging.getLogger("penstock.router")

Response = TypeVar("Response", bound=Message)
Refusal = Callable[[KafkaError], Any]

PRINCIPAL_VERSION: Final = 0


class Forwarding:
    def __init__(self, quorum: MetadataQuorum, controller: ControllerChannel, settings: LiveSettings) -> None:
        self._quorum = quorum
        self._controller = controller
        self._settings = settings

    def forward(
        self,
        request: Request,
        operation: Callable[[Controller], Result[Response]],
        refusal: Callable[[KafkaError], Response],
        about: Iterable[str] | None = None,
    ) -> None:
        """`refusal` makes the response for a request that is refused as a whole. `about`: what an administrator's
        request is about, for the audit log; None for requests of nodes."""
        if self.pass_on(request, refusal):
            return
        answer = request.park()
        has_changes = False

        def watched(controller: Controller) -> Result[Response]:
            nonlocal has_changes
            result = operation(controller)
            has_changes = has_changes or bool(result.records)
            return result

        def done(outcome: Response | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                request.refuse(answer, outcome, refusal(outcome))
                return
            if about is not None and has_changes and not isinstance(request, LocalRequest):
                audit.changed(request.principal, request.client_host, request.api_key, list(about))
            answer(outcome)

        self._quorum.submit(watched, done)

    def forward_allowed(
        self,
        action: Operation,
        request: Request,
        operation: Callable[[Controller], Result[Response]],
        refusal: Callable[[KafkaError], Response],
        about: Iterable[str] | None = None,
    ) -> Response | None:
        """Forward the request if the client may do `action` on the cluster; otherwise return the refusal."""
        if not request.may(action, CLUSTER):
            return refusal(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        self.forward(request, operation, refusal, about)
        return None

    def pass_on(self, request: Request, refusal: Refusal) -> bool:
        """Forward the request if another node is the active controller and the request came from one of our clients."""
        if not request.may_be_forwarded or self._quorum.is_active or self._settings.static.is_alone:
            return False
        assert request.frame is not None, "a request from a client has its bytes"
        envelope = EnvelopeRequest(
            request_data=bytes(request.frame),
            request_principal=encode_principal(request.principal, by_token=request.is_token_authenticated),
            client_host_address=_address(request.client_host),
        )
        answer = request.park_encoded()
        connection = request.connection

        def done(outcome: EnvelopeResponse | PeerFailed) -> None:
            if isinstance(outcome, EnvelopeResponse) and outcome.error_code == ErrorCode.NONE:
                answer(outcome.response_data or b"")
                return
            if isinstance(outcome, EnvelopeResponse):
                if outcome.error_code == ErrorCode.UNSUPPORTED_VERSION:
                    # The controller runs another release. The client asks for the supported versions on reconnecting.
                    connection.abort()
                    return
                error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                logger.error(
                    "the controller refuses what %s passes on: %s",
                    request.principal,
                    ErrorCode(outcome.error_code).name,
                )
            else:
                error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The controller did not answer: {outcome.message}")
            answer(join(request.parts(refusal(error)))[4:])

        self._controller.send(envelope, done, timeout=self._settings.now.request_timeout_ms / 1000)
        return True


def encode_principal(principal: Principal, *, by_token: bool) -> bytes:
    data = DefaultPrincipalData(type=principal.type, name=principal.name, token_authenticated=by_token)
    return PRINCIPAL_VERSION.to_bytes(2, "big") + encode(data, PRINCIPAL_VERSION)


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b"\0\0\0\0"  # not over IP
