"""SCRAM users: sets and removes their credentials.

A client sends the salted password, so that this node never sees the password and never computes PBKDF2. A user may
appear once in a request; a user who appears twice is not changed at all.
"""

from __future__ import annotations

from collections import Counter

from penstock.controller.result import MAX_RECORDS_PER_REQUEST, Result
from penstock.metadata.image import MetadataImage, scram_record
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.protocol.messages.metadata_records import RemoveUserScramCredentialRecord
from penstock.security.credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, ScramUser, credential_of


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Result[AlterUserScramCredentialsResponse]:
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    if len(changes) > MAX_RECORDS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"More than {MAX_RECORDS_PER_REQUEST} credentials in one request.")
    counts = Counter(change.name for change in changes)
    records: list[Message] = []
    results: list[AlterUserScramCredentialsResult] = []
    for change in {change.name: change for change in changes}.values():
        try:
            if counts[change.name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            records.append(_record(image, change))
            results.append(AlterUserScramCredentialsResult(user=change.name))
        except KafkaError as error:
            results.append(
                AlterUserScramCredentialsResult(user=change.name, error_code=error.code, error_message=error.message)
            )
    return Result(records, AlterUserScramCredentialsResponse(results=results))


def _record(image: MetadataImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Message:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        user = ScramUser(change.name, ScramMechanism(change.mechanism))
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if isinstance(change, ScramCredentialDeletion):
        if user not in image.scram_credentials:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=user.name, mechanism=user.mechanism)
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return scram_record(user, credential_of(user.mechanism, change.salted_password, change.salt, change.iterations))
