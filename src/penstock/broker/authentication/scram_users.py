"""The SCRAM users of the cluster, and its delegation tokens, from the committed metadata."""

from __future__ import annotations

from collections.abc import Callable

from penstock.io.clock import Clock, Randomness
from penstock.metadata.image import MetadataImage
from penstock.security.credentials import MIN_ITERATIONS, ScramCredential, ScramMechanism, ScramUser, new_credential
from penstock.security.sasl.scram import TokenCredential
from penstock.security.tokens import token_password

SALT_BYTES = 16


class ScramUsers:
    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        clock: Clock,
        randomness: Randomness,
        token_secret: str | None,
    ) -> None:
        """`token_secret`: delegation.token.secret.key; None if there are no delegation tokens."""
        self._image = image
        self._clock = clock
        self._randomness = randomness
        self._token_secret = token_secret
        # Derived credentials of tokens that have logged in. A login with one takes no PBKDF2.
        self._derived: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        return self._image().scram_credentials.get(ScramUser(name, mechanism))

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        secret = self._token_secret
        tokens = self._image().delegation_tokens
        token = tokens.get(token_id)
        if secret is None or token is None or token.is_expired(self._clock.now_ms()):
            return None
        if len(self._derived) > 2 * len(tokens) + 2:
            # A copy: threads add to the table.
            self._derived = {key: value for key, value in self._derived.copy().items() if key[0] in tokens}
        salt = self._randomness.bytes(SALT_BYTES)

        def derive() -> ScramCredential:
            known = self._derived.get((token_id, mechanism))
            if known is None:
                password = token_password(secret, token_id)
                known = new_credential(mechanism, password, salt, MIN_ITERATIONS)
                self._derived[token_id, mechanism] = known
            return known

        return TokenCredential(token.owner, token.expires_at_ms, derive)
