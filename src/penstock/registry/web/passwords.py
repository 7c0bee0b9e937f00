"""Users of the cluster: a name and a password are right if a broker accepts a SASL login with them.

An accepted password is remembered for a while, as a keyed hash, so that not every request is a login at a broker. A
refused one is remembered for a moment. Both memories are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from penstock.client.access import open_access
from penstock.client.errors import BadSetting, ClientError, NotAuthorized
from penstock.client.wire.cluster import Cluster
from penstock.registry.core.errors import RegistryError
from penstock.settings.sasl import SASL_PROTOCOLS

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ACCEPTED_S: Final = 60.0
REFUSED_S: Final = 5.0
_REMEMBERED_MAX: Final = 10_000
_LOGINS_AT_ONCE: Final = 4


class Passwords:
    def __init__(self, bootstrap: str, mechanism: str | None, *, timeout: float) -> None:
        access = open_access(bootstrap)
        protocol = access.properties.get("security.protocol", "PLAINTEXT").upper()
        mechanism = mechanism or access.properties.get("sasl.mechanism", "")
        if protocol not in SASL_PROTOCOLS or mechanism not in MECHANISMS:
            raise BadSetting(
                "users are checked by a login at the cluster: the registry needs client settings with SASL, and "
                f"--mechanism, one of {', '.join(MECHANISMS)}"
            )
        own = ("sasl.jaas.config", "sasl.username", "sasl.password", "sasl.mechanism", "sasl.mechanisms")
        self._properties = {name: value for name, value in access.properties.items() if name not in own}
        self._properties["sasl.mechanism"] = mechanism
        self._bootstrap = access.bootstrap
        self._timeout = timeout
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()
        self._logins = asyncio.Semaphore(_LOGINS_AT_ONCE)

    async def user_of(self, authorization: str | None) -> str:
        """The user of a request; 401 if there is none, or the password is wrong."""
        user, password = _credentials(authorization)
        digest = hmac.new(self._key, f"{len(user)}:{user}:{password}".encode(), hashlib.sha256).digest()
        known, until = self._remembered.get(digest, (False, 0.0))
        if time.monotonic() > until:
            async with self._logins:
                known = await asyncio.to_thread(self._log_in, user, password)
            self._remembered[digest] = (known, time.monotonic() + (ACCEPTED_S if known else REFUSED_S))
            while len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        if not known:
            raise _unauthorized()
        return user

    def _log_in(self, user: str, password: str) -> bool:
        options: Mapping[str, str] = {**self._properties, "sasl.username": user, "sasl.password": password}
        try:
            with Cluster(self._bootstrap, timeout=self._timeout, options=options) as cluster:
                cluster.metadata([])
            return True
        except NotAuthorized:
            return False
        except ClientError as error:
            raise RegistryError(50001, f"The cluster cannot check the password now: {error}") from error


def _credentials(authorization: str | None) -> tuple[str, str]:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        raise _unauthorized()
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise _unauthorized() from None
    if not user or not colon:
        raise _unauthorized()
    return user, password


def _unauthorized() -> RegistryError:
    return RegistryError(401, "Unauthorized")
