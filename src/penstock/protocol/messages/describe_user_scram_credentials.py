"""DescribeUserScramCredentials (API key 50). List the SCRAM mechanisms for which users have credentials."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field
from penstock.protocol.primitives import Int8, Int16, Int32


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field("0+", nullable="0+")


class UserName(Message):
    name: str = field("0+")


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field("0+")


class DescribeUserScramCredentialsResult(Message):
    user: str = field("0+")
    error_code: Int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = field("0+")


class CredentialInfo(Message):
    mechanism: Int8 = field("0+")
    iterations: Int32 = field("0+")
