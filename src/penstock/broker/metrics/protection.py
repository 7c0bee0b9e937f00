"""Who may read the metrics of a node: TLS on the endpoint, and a password or a token in the request."""

from __future__ import annotations

import base64
import hmac
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.settings.observability import METRICS_LISTENER_NAME, ObservabilitySettings
from penstock.settings.tls import tls_of_listener
from penstock.tls import open_contexts, renew

if TYPE_CHECKING:
    from penstock.tls.contexts import TlsContexts

_HEADER: Final = b"authorization:"
_PURPOSE: Final = "the metrics endpoint"


class Protection:
    def __init__(self, settings: ObservabilitySettings, properties: Mapping[str, str]) -> None:
        """KafkaError(INVALID_CONFIG) if the key store cannot be used."""
        self._accepted: list[bytes] = []
        if settings.penstock_metrics_user:
            pair = f"{settings.penstock_metrics_user}:{settings.penstock_metrics_password}"
            self._accepted.append(b"Basic " + base64.b64encode(pair.encode()))
        if settings.penstock_metrics_bearer_token is not None:
            self._accepted.append(b"Bearer " + settings.penstock_metrics_bearer_token.encode())
        self._tls_settings = tls_of_listener(METRICS_LISTENER_NAME, properties)
        self._tls: TlsContexts | None = None
        if settings.metrics_endpoint is not None and settings.penstock_metrics_protocol == "https":
            self._tls = open_contexts(self._tls_settings, _PURPOSE)
            self.context: ssl.SSLContext | None = self._tls.accepting
            self.context.sni_callback = self._use_newest
        else:
            self.context = None

    @property
    def uses_tls(self) -> bool:
        return self._tls is not None

    def renew(self) -> None:
        """Use a changed key store for new connections."""
        if self._tls is not None:
            renew(self._tls, self._tls_settings, _PURPOSE)

    def _use_newest(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """The server keeps the context that it was opened with, which hands each connection on to the newest one."""
        if self._tls is not None:
            connection.context = self._tls.accepting

    @property
    def challenge(self) -> str:
        """The header that tells a client how to authenticate."""
        schemes = [accepted.split(b" ")[0].decode() for accepted in self._accepted]
        return "".join(f'WWW-Authenticate: {scheme} realm="penstock"\r\n' for scheme in schemes)

    def allows(self, head: bytes) -> bool:
        """Whether the head of a request has one of the credentials, if there are any."""
        if not self._accepted:
            return True
        given = next((line for line in head.split(b"\r\n")[1:] if line.lower().startswith(_HEADER)), b"")
        value = given[len(_HEADER) :].strip()
        scheme, _, credential = value.partition(b" ")
        value = scheme.capitalize() + b" " + credential.strip()
        return any(hmac.compare_digest(value, accepted) for accepted in self._accepted)
