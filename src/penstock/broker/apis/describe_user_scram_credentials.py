"""DescribeUserScramCredentials: the mechanisms and iterations of SCRAM users, not their keys. Version 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping

from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.model.errors import MESSAGE_MAX, ErrorCode
from penstock.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.security.authorizer import CLUSTER, Operation
from penstock.security.credentials import ScramCredential, ScramMechanism, ScramUser

VERSIONS = (0, 0)

_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_MISSING = "Attempt to describe a user credential that does not exist: "


def handle(
    services: AdminServices, request: Request, message: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    if not request.may(Operation.DESCRIBE, CLUSTER):
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None
        )
    credentials = services.quorum.image.scram_credentials
    asked = Counter(user.name for user in message.users or ())
    names = asked or Counter({user.name: 1 for user in credentials})
    response = DescribeUserScramCredentialsResponse()
    for name, count in names.items():
        response.results.append(_described(credentials, name, count))
        yield
    return response


def _described(
    credentials: Mapping[ScramUser, ScramCredential], name: str, count: int
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=f"{_TWICE}{name}"[:MESSAGE_MAX]
        )
    infos = [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism in ScramMechanism
        if (credential := credentials.get(ScramUser(name, mechanism))) is not None
    ]
    if not infos:
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=f"{_MISSING}{name}"[:MESSAGE_MAX]
        )
    return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
