"""How this node secures its connections to other nodes: as their listeners ask.

Brokers are reached at the listener `inter.broker.listener.name`, controllers at the first listener of
`controller.listener.names`. Their protocols are those of `listener.security.protocol.map`, and the TLS settings are
those of the listener's name, also on a node that has no such listener itself.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.settings.listeners import TLS_PROTOCOLS
from penstock.settings.live import LiveSettings
from penstock.settings.tls import TlsSettings, tls_of_listener
from penstock.tls import open_contexts, renew

if TYPE_CHECKING:
    from penstock.tls.contexts import TlsContexts


class InterNodeSecurity:
    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings
        self._contexts: dict[str, TlsContexts] = {}
        static = settings.static
        self.to_controllers = None if static.is_alone else self._opener(static.quorum_listener)
        self.to_brokers = None if static.is_alone else self._opener(static.inter_broker_listener)

    def _opener(self, listener: str) -> Callable[[], ssl.SSLContext] | None:
        if self._settings.static.protocol_map.get(listener, "PLAINTEXT") not in TLS_PROTOCOLS:
            return None
        contexts = open_contexts(self._tls_settings(listener), f"connections to {listener} listeners", accepts=False)
        self._contexts[listener] = contexts
        return lambda: contexts.connecting

    def _tls_settings(self, listener: str) -> TlsSettings:
        return tls_of_listener(listener, self._settings.layers.effective)

    @property
    def uses_tls(self) -> bool:
        return bool(self._contexts)

    def principal_at(self, listener: str) -> str | None:
        """The user that this node is at the listeners of others, as far as its own settings tell; None if it is not
        its certificate that says so."""
        if self._settings.static.protocol_map.get(listener) != "SSL" or listener not in self._contexts:
            return None
        return str(self._contexts[listener].own_principal)

    def renew(self) -> None:
        """Use changed key and trust stores for new connections."""
        for listener, contexts in self._contexts.items():
            renew(contexts, self._tls_settings(listener), f"connections to {listener} listeners")
