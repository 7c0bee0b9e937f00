"""Bytes from strangers: every decoder gives a message or MalformedMessage, and spends no memory it was not sent."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.codec import MalformedMessage, decode, decode_from, encode
from penstock.protocol.declaration import Message, TypedField
from penstock.protocol.frames import read_request_header
from penstock.protocol.primitives import BYTES, RECORDS, Scalar
from properties.protocol_strategies import all_messages, versions_of
from property_examples import examples

REQUESTS = [cls for cls in all_messages() if cls.__name__.endswith("Request")]
# Lengths and counts that no frame can hold, as an int16, an int32 and a varint; and some that are merely negative.
ABSURDITIES = [b"\x7f\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"]


def filled(cls: type[Message], version: int) -> Any:
    """A message with something in every field, so that every branch of its decoder is on the way."""
    return cls(
        **{field.name: _something(field, version) for field in cls.__schema__.fields if version in field.versions}
    )


def _something(field: TypedField, version: int) -> Any:
    if isinstance(field.type, type):
        value: Any = filled(field.type, version)
    elif isinstance(field.type, Scalar):
        value = b"0123456789abcdef" if field.type.name == "uuid" else 1
    else:
        value = {BYTES: b"bytes", RECORDS: b"records"}.get(field.type, "text")
    return [value] if field.is_array else value


def survives(cls: type[Message], data: bytes, version: int) -> bool:
    """Whether the bytes were a message after all. Any other exception fails the test."""
    try:
        decode(cls, data, version)
    except MalformedMessage:
        return False
    return True


def mutations(data: bytes) -> Iterator[bytes]:
    for position in range(len(data)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            yield data[:position] + bytes([byte]) + data[position + 1 :]
        for absurdity in ABSURDITIES:
            yield data[:position] + absurdity + data[position + len(absurdity) :]


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_a_truncated_request_is_malformed(cls: type[Message]) -> None:
    for version in versions_of(cls):
        encoded = encode(filled(cls, version), version)
        assert survives(cls, encoded, version)
        for size in range(len(encoded)):
            assert not survives(cls, encoded[:size], version)
        with pytest.raises(MalformedMessage, match="1 bytes too many"):
            decode(cls, encoded + b"\0", version)


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_a_damaged_request_is_a_message_or_malformed(cls: type[Message]) -> None:
    seen = set()
    for version in versions_of(cls):
        encoded = encode(filled(cls, version), version)
        if (encoded, version in cls.__schema__.flexible) in seen:
            continue
        seen.add((encoded, version in cls.__schema__.flexible))
        for mutated in mutations(encoded):
            survives(cls, mutated, version)


@pytest.mark.parametrize("cls", REQUESTS, ids=lambda cls: cls.__name__)
def test_absurd_counts_cost_no_memory(cls: type[Message]) -> None:
    version = versions_of(cls)[-1]
    encoded = encode(filled(cls, version), version)
    survives(cls, encoded, version)
    tracemalloc.start()
    try:
        for mutated in mutations(encoded):
            survives(cls, mutated, version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000 + 100 * len(encoded)


@settings(max_examples=examples(20), deadline=None, database=None)
@given(seed=st.integers(0, 2**32))
def test_random_bytes_are_a_message_or_malformed(seed: int) -> None:
    chance = random.Random(seed)
    for cls in REQUESTS:
        version = chance.choice(versions_of(cls))
        data = bytes(chance.choices((0, 0, 1, 1, 2, 3, 127, 128, 255, chance.randrange(256)), k=chance.randrange(60)))
        survives(cls, data, version)
        with contextlib.suppress(MalformedMessage):
            decode_from(cls, memoryview(data), version, chance.randrange(8))


@settings(max_examples=examples(200), deadline=None, database=None)
@given(data=st.binary(max_size=40), position=st.integers(0, 10))
def test_random_bytes_as_a_request_header(data: bytes, position: int) -> None:
    try:
        header, body = read_request_header(data, position)
    except MalformedMessage:
        return
    assert position + 10 <= body <= len(data)
    assert header.client_id is None or isinstance(header.client_id, str)
