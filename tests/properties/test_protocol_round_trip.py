"""Every message, in every version: what was encoded is what is decoded."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.protocol.codec import decode, decode_from, encode, encode_parts, join
from penstock.protocol.declaration import Message
from penstock.protocol.primitives import Part
from properties.protocol_strategies import all_messages, message, versions_of

few = settings(
    max_examples=4,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
@few
@given(data=st.data())
def test_round_trip(cls: type[Message], data: st.DataObject) -> None:
    for version in versions_of(cls):
        original = data.draw(message(cls, version))
        encoded = encode(original, version)

        assert decode(cls, encoded, version) == original
        assert decode(cls, bytearray(b"??" + encoded), version, 2) == original
        again, position = decode_from(cls, memoryview(b"??" + encoded + b"!"), version, 2)
        assert again == original
        assert position == 2 + len(encoded)

        parts: list[Part] = []
        encode_parts(original, version, parts)
        assert join(parts) == encoded
