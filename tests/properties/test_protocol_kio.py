"""An independent implementation agrees, byte for byte and field by field, on all that it knows."""

from __future__ import annotations

import dataclasses
import datetime
import io
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import UnknownEntity, load_entity_schema
from kio.schema.index import LoadableEntityType, api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from penstock.model.ids import ZERO_UUID
from penstock.protocol.apis import API
from penstock.protocol.codec import decode, encode
from penstock.protocol.declaration import Message, TypedField
from penstock.protocol.primitives import UUID, Scalar
from properties.protocol_strategies import all_messages, message, versions_of

few = settings(
    max_examples=4,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

# What kio calls the messages that are neither requests nor responses.
OTHER_NAMES = {
    "ConsumerProtocolAssignment": "consumer_protocol_assignment",
    "ConsumerProtocolSubscription": "consumer_protocol_subscription",
    "DefaultPrincipalData": "default_principal_data",
    "EndTxnMarker": "end_txn_marker",
    "KRaftVersionRecord": "k_raft_version_record",
    "LeaderChangeMessage": "leader_change_message",
    "RequestHeader": "request_header",
    "ResponseHeader": "response_header",
    "SnapshotFooterRecord": "snapshot_footer_record",
    "SnapshotHeaderRecord": "snapshot_header_record",
    "VotersRecord": "voters_record",
}


def kio_class(cls: type[Message], version: int) -> Any:
    """Kio's class for one version of a message of ours, or None where it has none."""
    name = OTHER_NAMES.get(cls.__name__)
    kind: LoadableEntityType = EntityType.data
    if name is not None:
        kind = EntityType.header if name.endswith("header") else EntityType.data
    elif (key := cls.__schema__.key) is not None and key in API and cls.__name__.endswith(("Request", "Response")):
        name = api_key_map.get(key)
        kind = EntityType.request if cls.__name__.endswith("Request") else EntityType.response
    if name is None:
        return None
    try:
        return load_entity_schema(name, version, kind)
    except UnknownEntity:
        return None


def known_to_kio() -> list[type[Message]]:
    return [cls for cls in all_messages() if any(kio_class(cls, version) for version in versions_of(cls))]


def plain(value: Any, field: TypedField) -> Any:
    """A value of kio's as ours would be. A zero UUID is None to kio, and so is a datetime of -1."""
    if isinstance(value, tuple):
        return [plain(element, field._replace(is_array=False)) for element in value]
    if value is None and isinstance(field.type, Scalar) and not field.is_array:
        return ZERO_UUID if field.type is UUID else -1
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


def our_name(name: str) -> str:
    """Kio's name of a field as ours would be, except for the unit at its end."""
    name = name.rstrip("_").replace("k_raft", "kraft").removesuffix("_ms")
    others = {
        "generation_id": "generation_id_or_member_epoch",
        "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
    }
    return others.get(name, name)


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    sent = [field for field in ours.__schema__.fields if version in field.versions]
    counterparts = dataclasses.fields(theirs)
    assert len(sent) == len(counterparts), (type(ours), [field.name for field in counterparts])
    by_name = {our_name(field.name): field for field in sent}
    for counterpart in counterparts:
        field = by_name[our_name(counterpart.name)]
        mine, other = getattr(ours, field.name), getattr(theirs, counterpart.name)
        if isinstance(mine, Message):
            assert_same(mine, other, version)
        elif isinstance(mine, list) and mine and isinstance(mine[0], Message):
            assert len(mine) == len(other)
            for mine_element, other_element in zip(mine, other, strict=True):
                assert_same(mine_element, other_element, version)
        elif mine is None and dataclasses.is_dataclass(other):
            # A tagged struct that was not sent: kio has its defaults.
            assert_same(field.type(), other, version)
        else:
            assert mine == plain(other, field), field.name


def test_kio_knows_most_messages() -> None:
    known = known_to_kio()
    requests = {spec.request for spec in API.values()}
    assert len(requests - set(known)) <= 2  # those of Kafka 4.4
    assert {cls.__name__ for cls in known} >= set(OTHER_NAMES)


@pytest.mark.parametrize("cls", known_to_kio(), ids=lambda cls: cls.__name__)
@few
@given(data=st.data())
def test_same_bytes_and_same_fields_as_kio(cls: type[Message], data: st.DataObject) -> None:
    for version in versions_of(cls):
        theirs_class = kio_class(cls, version)
        if theirs_class is None:
            continue
        ours = data.draw(message(cls, version, for_kio=True))
        encoded = encode(ours, version)

        theirs, size = entity_reader(theirs_class)(encoded, 0)
        assert size == len(encoded)
        assert_same(ours, theirs, version)

        written = io.BytesIO()
        entity_writer(theirs_class)(written, theirs)
        assert written.getvalue() == encoded
        assert decode(cls, written.getvalue(), version) == ours
