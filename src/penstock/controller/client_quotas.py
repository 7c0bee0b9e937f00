"""Quotas of clients: sets and removes them.

Each entity of a request is independent. An entity that is named twice is refused (in Kafka, with the same error, the
first change is made nonetheless).
"""

from __future__ import annotations

from collections import Counter

from penstock.controller.result import MAX_RECORDS_PER_REQUEST, Result
from penstock.metadata.image import MetadataImage, quota_record
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.declaration import Message
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    OpData,
)
from penstock.quotas.entity import Entity, check_value, entity_of, entity_text, keys_of


def alter_client_quotas(image: MetadataImage, request: AlterClientQuotasRequest) -> Result[AlterClientQuotasResponse]:
    records: list[Message] = []
    entries: list[AlterClientQuotasResponseEntryData] = []
    entities = [_entity(entry) for entry in request.entries]
    counts = Counter(entities)
    by_entity = dict(zip(entities, request.entries, strict=True))
    for entity in counts:
        error = None
        try:
            if counts[entity] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {entity_text(entity)}")
            records += _altered(image, entity, by_entity[entity].ops)
        except KafkaError as refusal:
            error = refusal
        entries.append(_result(entity, error))
    if len(records) > MAX_RECORDS_PER_REQUEST:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"More than {MAX_RECORDS_PER_REQUEST} quotas in one request.")
    return Result([] if request.validate_only else records, AlterClientQuotasResponse(entries=entries))


def refused(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    """The response to a request that is refused as a whole."""
    return AlterClientQuotasResponse(entries=[_result(_entity(entry), error) for entry in request.entries])


def _altered(image: MetadataImage, entity: Entity, changes: list[OpData]) -> list[Message]:
    keys = keys_of(entity)
    current = image.client_quotas.get(entity, {})
    records: list[Message] = []
    seen: set[str] = set()
    for change in changes:
        if change.key in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {change.key} for {entity_text(entity)}")
        seen.add(change.key)
        if change.remove:
            if change.key in current:
                records.append(quota_record(entity, change.key, None))
            continue
        check_value(keys, change.key, change.value)
        if current.get(change.key) != change.value:
            records.append(quota_record(entity, change.key, change.value))
    return records


def _entity(entry: AlterClientQuotasRequestEntryData) -> Entity:
    return entity_of((part.entity_type, part.entity_name) for part in entry.entity)


def _result(entity: Entity, error: KafkaError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )
