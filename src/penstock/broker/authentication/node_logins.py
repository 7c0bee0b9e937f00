"""How this node logs in to other nodes: as their listeners ask."""

from __future__ import annotations

from penstock.io.clock import Randomness
from penstock.security.sasl.logins import AnyLogin, password_login
from penstock.security.sasl.scram import NONCE_BYTES, nonce_of
from penstock.settings.node import NodeSettings
from penstock.settings.sasl import Login


class NodeLogins:
    def __init__(self, settings: NodeSettings, randomness: Randomness) -> None:
        self._randomness = randomness
        self.to_controllers = None if settings.is_alone else self._login(settings.controller_login)
        self.to_brokers = None if settings.is_alone else self._login(settings.inter_broker_login)

    def _login(self, login: Login | None) -> AnyLogin | None:
        if login is None:
            return None
        return password_login(
            login.mechanism,
            login.user,
            login.password,
            lambda: nonce_of(self._randomness.bytes(NONCE_BYTES)),
            by_token=login.by_token,
        )
