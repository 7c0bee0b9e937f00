"""How this node logs in to other nodes: as their listeners ask."""

from __future__ import annotations

from penstock.broker.authentication.token_sources import token_source
from penstock.io.clock import Clock, Randomness
from penstock.security.sasl.logins import AnyLogin, OAuthBearerLogin, password_login
from penstock.security.sasl.scram import NONCE_BYTES, nonce_of
from penstock.settings.node import NodeSettings
from penstock.settings.sasl import BearerLogin, Login


class NodeLogins:
    def __init__(self, settings: NodeSettings, randomness: Randomness, clock: Clock) -> None:
        self._randomness = randomness
        self._clock = clock
        self.to_controllers = None if settings.is_alone else self._login(settings.controller_login)
        self.to_brokers = None if settings.is_alone else self._login(settings.inter_broker_login)

    def _login(self, login: Login | BearerLogin | None) -> AnyLogin | None:
        if login is None:
            return None
        if isinstance(login, BearerLogin):
            return OAuthBearerLogin(token_source(login, self._clock.boottime_ms))
        return password_login(
            login.mechanism,
            login.user,
            login.password,
            lambda: nonce_of(self._randomness.bytes(NONCE_BYTES)),
            by_token=login.by_token,
        )
