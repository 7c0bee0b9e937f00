"""SCRAM users: who has a password, setting and removing passwords.

The password never leaves this process: the cluster gets the salted password of SCRAM, which is derived here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.client.errors import ClientError, raise_for
from penstock.client.wire.cluster import Cluster
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from penstock.security.credentials import ScramMechanism, salted_password

DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
DEFAULT_ITERATIONS: Final = 8192
SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class ScramUserDescription:
    name: str
    # Iterations by mechanism.
    mechanisms: dict[str, int]


class Users:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self, names: Iterable[str] = ()) -> list[ScramUserDescription]:
        """Return the users with these names, or all."""
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)
        response = self._cluster.request(request, DescribeUserScramCredentialsResponse)
        raise_for(response.error_code, response.error_message, "SCRAM users")
        found = []
        for result in response.results:
            raise_for(result.error_code, result.error_message, f"user {result.user!r}")
            mechanisms = {_title(info.mechanism): info.iterations for info in result.credential_infos}
            found.append(ScramUserDescription(result.user, mechanisms))
        return sorted(found, key=lambda user: user.name)

    def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanism: str = DEFAULT_MECHANISM,
        iterations: int = DEFAULT_ITERATIONS,
    ) -> None:
        """Create a user, or replace its password for this mechanism."""
        scram = _mechanism(mechanism)
        salt = secrets.token_bytes(SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=scram,
            iterations=iterations,
            salt=salt,
            salted_password=salted_password(scram, password, salt, iterations),
        )
        self._alter(AlterUserScramCredentialsRequest(upsertions=[upsertion]), f"cannot set the password of {name!r}")

    def remove(self, name: str, *, mechanism: str = DEFAULT_MECHANISM) -> None:
        deletion = ScramCredentialDeletion(name=name, mechanism=_mechanism(mechanism))
        self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]), f"cannot remove user {name!r}")

    def _alter(self, request: AlterUserScramCredentialsRequest, about: str) -> None:
        response = self._cluster.request(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            raise_for(result.error_code, result.error_message, about)


def _mechanism(title: str) -> ScramMechanism:
    mechanism = ScramMechanism.of(title)
    if mechanism is None:
        raise ClientError(f"{title!r} is not SCRAM-SHA-256 or SCRAM-SHA-512")
    return mechanism


def _title(number: int) -> str:
    try:
        return ScramMechanism(number).title
    except ValueError:
        return f"mechanism {number}"
