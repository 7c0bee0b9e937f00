"""Delegation tokens: short-lived credentials that a user hands to the parts of an application.

A token is an id and an HMAC of that id with a secret that only the nodes know. The metadata contains the id and the
times; the HMAC is never stored. To log in, a client uses SCRAM with the id as the user and the HMAC, in base64, as the
password.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import NamedTuple

from penstock.security.principal import Principal


class DelegationToken(NamedTuple):
    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_at_ms: int
    # The time up to which the token can be renewed.
    max_at_ms: int
    expires_at_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_at_ms < now_ms or self.expires_at_ms < now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        return principal == self.owner or principal in self.renewers


def token_hmac(secret_key: str, token_id: str) -> bytes:
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


class TokenHmacs:
    """Finds tokens by their HMACs, each of which is computed once. (Kafka keeps such a table, too.)"""

    def __init__(self) -> None:
        self._tokens: Mapping[str, DelegationToken] = {}
        self._secret = ""
        self._by_id: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    def find(self, tokens: Mapping[str, DelegationToken], secret_key: str, given: bytes) -> DelegationToken | None:
        if tokens is not self._tokens or secret_key != self._secret:
            self._follow(tokens, secret_key)
        token_id = self._ids.get(given)
        return None if token_id is None else tokens[token_id]

    def _follow(self, tokens: Mapping[str, DelegationToken], secret_key: str) -> None:
        if secret_key != self._secret:
            self._by_id.clear()
            self._ids.clear()
        for token_id in self._by_id.keys() - tokens.keys():
            del self._ids[self._by_id.pop(token_id)]
        for token_id in tokens.keys() - self._by_id.keys():
            self._by_id[token_id] = computed = token_hmac(secret_key, token_id)
            self._ids[computed] = token_id
        self._tokens, self._secret = tokens, secret_key


def token_password(secret_key: str, token_id: str) -> str:
    return base64.b64encode(token_hmac(secret_key, token_id)).decode("ascii")
