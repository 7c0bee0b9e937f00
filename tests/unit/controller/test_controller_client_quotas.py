"""Quotas of clients: what the controller accepts, what it writes, and what a filter finds."""

from __future__ import annotations

import math

import pytest

from penstock.controller.client_quotas import alter_client_quotas
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.difference import delta_between
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.serde import decode_record, encode_record
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.quotas.entity import entity_of
from penstock.quotas.filters import Component, Match, matching

Entity = dict[str, str | None]
Values = dict[str, float | None]


def asked(entity: Entity, values: Values) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def altered(
    image: MetadataImage, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> tuple[list[tuple[int, str | None]], MetadataImage]:
    """The answer for each entity, and the image afterwards, as a node has it that reads the records from its log."""
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    records, response = alter_client_quotas(image, request)
    delta = MetadataDelta(image)
    delta.replay_all(decode_record(encode_record(record, 30)) for record in records)
    assert delta.quotas_changed == bool(records)
    return [(entry.error_code, entry.error_message) for entry in response.entries], delta.apply(1, 1, 1)


def test_quotas_are_set_changed_and_removed() -> None:
    alice = entity_of([("user", "alice")])
    answers, image = altered(EMPTY_IMAGE, asked({"user": "alice"}, {"producer_byte_rate": 1000.0}))
    assert answers == [(0, None)]
    assert image.client_quotas == {alice: {"producer_byte_rate": 1000.0}}
    _, image = altered(
        image,
        asked({"user": "alice"}, {"producer_byte_rate": None, "request_percentage": 12.5}),
        asked({"client-id": None, "user": None}, {"consumer_byte_rate": 5.0}),
        asked({"ip": "10.0.0.1"}, {"connection_creation_rate": 7.0}),
    )
    assert image.client_quotas == {
        alice: {"request_percentage": 12.5},
        (("client-id", None), ("user", None)): {"consumer_byte_rate": 5.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 7.0},
    }
    snapshot = MetadataDelta(EMPTY_IMAGE)
    snapshot.replay_all(image.to_records())
    assert snapshot.apply(9, 9, 9).same_content(image)
    assert delta_between(EMPTY_IMAGE, image).quotas_changed
    assert not delta_between(image, image).quotas_changed
    _, image = altered(image, asked({"user": "alice"}, {"request_percentage": None}))
    assert alice not in image.client_quotas


def test_what_changes_nothing_writes_nothing() -> None:
    _, image = altered(EMPTY_IMAGE, asked({"user": "alice"}, {"producer_byte_rate": 1000.0}))
    changes: list[Values] = [{"producer_byte_rate": 1000.0}, {"consumer_byte_rate": None}]
    for change in changes:
        request = AlterClientQuotasRequest(entries=[asked({"user": "alice"}, change)])
        assert alter_client_quotas(image, request).records == []
    answers, unchanged = altered(image, asked({"user": "alice"}, {"producer_byte_rate": 9.0}), validate_only=True)
    assert answers == [(0, None)]
    assert unchanged.same_content(image)


@pytest.mark.parametrize(
    ("entity", "values", "why"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"user": "a"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"request_percentage": math.nan}, "Quota request_percentage must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        ({"user": "a"}, {"producer_byte_rate": 1e19}, "Proposed value for producer_byte_rate is too large for a LONG."),
        ({"user": "a"}, {"bytes": 1.0}, "Invalid configuration key bytes"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"ip": None}, {"connection_creation_rate": 2.5}, "connection_creation_rate cannot be a fractional value."),
        ({"ip": "nowhere"}, {"connection_creation_rate": 1.0}, "nowhere is not a valid IP"),
        (
            {"ip": "10.0.0.1", "user": "a"},
            {"connection_creation_rate": 1.0},
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
    ],
)
def test_what_is_refused(entity: Entity, values: Values, why: str) -> None:
    answers, image = altered(
        EMPTY_IMAGE, asked(entity, values), asked({"user": "other"}, {"controller_mutation_rate": 0.5})
    )
    assert answers == [(ErrorCode.INVALID_REQUEST, why), (0, None)]
    assert image.client_quotas == {(("user", "other"),): {"controller_mutation_rate": 0.5}}


def test_an_entity_or_key_named_twice_is_refused() -> None:
    entry = asked({"user": "a"}, {"producer_byte_rate": 1.0})
    answers, image = altered(EMPTY_IMAGE, entry, asked({"user": "a"}, {"consumer_byte_rate": 1.0}))
    assert answers == [(ErrorCode.INVALID_REQUEST, "Ignoring duplicate entity user 'a'")]
    assert image.client_quotas == {}
    entry.ops *= 2
    answers, image = altered(EMPTY_IMAGE, entry)
    assert answers == [(ErrorCode.INVALID_REQUEST, "Duplicate quota key producer_byte_rate for user 'a'")]
    assert image.client_quotas == {}


QUOTAS = {
    entity_of(entity.items()): {"producer_byte_rate": 1.0}
    for entity in (
        {"user": "a"}, {"user": None}, {"client-id": "c"}, {"user": "a", "client-id": "c"},
        {"user": "a", "client-id": None}, {"user": None, "client-id": "c"}, {"ip": "::1"},
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, len(QUOTAS)),
        ([], True, 0),
        ([Component("user", Match.EXACT, "a")], False, 3),
        ([Component("user", Match.EXACT, "a")], True, 1),
        ([Component("user", Match.DEFAULT, None)], False, 2),
        ([Component("user", Match.ANY, None)], False, 5),
        ([Component("user", Match.ANY, None)], True, 2),
        ([Component("user", Match.ANY, None), Component("client-id", Match.EXACT, "c")], True, 2),
        ([Component("user", Match.EXACT, "a"), Component("client-id", Match.DEFAULT, None)], True, 1),
        ([Component("ip", Match.ANY, None)], True, 1),
        ([Component("user", Match.EXACT, "nobody")], False, 0),
    ],
)
def test_filters(components: list[Component], strict: bool, found: int) -> None:
    assert len(matching(QUOTAS, components, strict=strict)) == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component("", Match.ANY, None)], ErrorCode.INVALID_REQUEST),
        ([Component("group", Match.ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([Component("user", Match.ANY, None), Component("user", Match.EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([Component("user", Match.EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", Match.DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([Component("user", Match.ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([Component("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([Component("user", Match.ANY, None), Component("ip", Match.ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_are_refused(components: list[Component], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        matching(QUOTAS, components, strict=False)
    assert refusal.value.code == code
