"""Builds the authentication of a listener from its settings: the mechanisms, their users, and a gate per connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Final

from penstock.broker.authentication.authenticators import load_authenticator
from penstock.broker.authentication.gate import AuthenticationCounts, Gate
from penstock.broker.authentication.key_sets import KeySet
from penstock.broker.authentication.scram_users import ScramUsers
from penstock.broker.authentication.verifications import Verifications
from penstock.broker.log_limiter import SparingLog
from penstock.broker.net.connection import Connection
from penstock.io.clock import Clock, Randomness
from penstock.metadata.image import MetadataImage
from penstock.model.errors import ErrorCode, KafkaError
from penstock.security.credentials import ScramMechanism
from penstock.security.sasl.authentication import Authentication, Mechanism
from penstock.security.sasl.bearer_tokens import BearerToken, Expectations, validate_signed, validate_unsecured
from penstock.security.sasl.exchange import ServerExchange
from penstock.security.sasl.oauthbearer import OAuthBearerServer
from penstock.security.sasl.plain import PlainServer, known_users
from penstock.security.sasl.scram import NONCE_BYTES, ScramServer, nonce_of
from penstock.settings.listeners import Endpoint
from penstock.settings.node import NodeSettings
from penstock.settings.sasl import SASL_PROTOCOLS, ListenerSasl, listener_sasl

logger = logging.getLogger("penstock.authentication")

NewExchange = Callable[[], ServerExchange]


class ListenerAuthentications:
    """The authentication of all listeners of a node."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        randomness: Randomness,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._randomness = randomness
        secret = settings.delegation_token_secret_key
        self._scram_users = ScramUsers(image, clock=clock, randomness=randomness, token_secret=secret)
        self._verifications = Verifications(loop)
        self._log: Final = SparingLog(logger, loop.time)
        self.counts: dict[str, AuthenticationCounts] = {}
        """By listener."""

    def gates_of(self, endpoint: Endpoint) -> Callable[[Connection], Gate] | None:
        """What makes the gate of a connection; None for a listener without SASL."""
        if endpoint.security_protocol not in SASL_PROTOCOLS:
            return None
        sasl = listener_sasl(self._settings.properties, endpoint.name)
        mechanisms = {
            name: Mechanism(self._exchanges(sasl, name), sasl.max_reauth_ms[name]) for name in sasl.mechanisms
        }
        counts = self.counts.setdefault(endpoint.name, AuthenticationCounts())

        def new_gate(connection: Connection) -> Gate:
            return Gate(
                connection,
                Authentication(mechanisms, wall_clock_ms=self._clock.now_ms),
                loop=self._loop,
                clock=self._clock,
                verifications=self._verifications,
                counts=counts,
                log=self._log,
                request_bytes_max=sasl.settings.sasl_server_max_receive_size,
                failure_delay_s=sasl.settings.connection_failed_authentication_delay_ms / 1000,
            )

        return new_gate

    def _exchanges(self, sasl: ListenerSasl, mechanism: str) -> NewExchange:
        if mechanism == "PLAIN":
            return self._plain(sasl)
        if mechanism == "OAUTHBEARER":
            return self._oauthbearer(sasl)
        scram = ScramMechanism.of(mechanism)
        assert scram is not None, mechanism
        return partial(self._scram, scram)

    def _plain(self, sasl: ListenerSasl) -> NewExchange:
        plug_in = sasl.settings.penstock_sasl_plain_authenticator
        if plug_in:
            check = load_authenticator(plug_in, sasl.authenticator_options)
            return lambda: PlainServer(check, may_block=True)
        users = known_users(sasl.jaas["PLAIN"].users)
        return lambda: PlainServer(users)

    def _scram(self, mechanism: ScramMechanism) -> ScramServer:
        return ScramServer(
            mechanism,
            credential=partial(self._scram_users.credential, mechanism),
            token=partial(self._scram_users.token, mechanism),
            nonce=nonce_of(self._randomness.bytes(NONCE_BYTES)),
        )

    def _oauthbearer(self, sasl: ListenerSasl) -> NewExchange:
        if find_spec("joserfc") is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"listener {sasl.listener}: OAUTHBEARER needs the package joserfc: pip install 'penstock[security]'",
            )
        settings = sasl.settings
        expected = Expectations(
            audience=frozenset(settings.sasl_oauthbearer_expected_audience),
            issuer=settings.sasl_oauthbearer_expected_issuer,
            clock_skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
            subject_claim=settings.sasl_oauthbearer_sub_claim_name,
            scope_claim=settings.sasl_oauthbearer_scope_claim_name,
        )
        validate = self._validation(sasl, expected)
        return lambda: OAuthBearerServer(validate)

    def _validation(self, sasl: ListenerSasl, expected: Expectations) -> Callable[[str], BearerToken]:
        settings, clock = sasl.settings, self._clock
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            return lambda token: validate_unsecured(token, expected, clock.now_ms() / 1000)
        keys = KeySet(
            url,
            now_ms=clock.boottime_ms,
            refresh_ms=settings.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            retry_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            retry_max_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        )
        return lambda token: validate_signed(token, keys.keys_for, expected, clock.now_ms() / 1000)
