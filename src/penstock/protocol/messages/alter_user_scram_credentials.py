"""AlterUserScramCredentials (API key 51). Set and remove SCRAM credentials."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field("0+")
    upsertions: list[ScramCredentialUpsertion] = field("0+")


class ScramCredentialDeletion(Message):
    name: str = field("0+")
    mechanism: Int8 = field("0+")


class ScramCredentialUpsertion(Message):
    name: str = field("0+")
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")
    salt: bytes = field("0+")
    salted_password: bytes = field("0+")


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    results: list[AlterUserScramCredentialsResult] = field("0+")


class AlterUserScramCredentialsResult(Message):
    user: str = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
