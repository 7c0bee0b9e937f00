"""Encodes and decodes the records of internal topics, in Kafka's formats.

A key begins with its type, a value with its version, both int16. Records of unknown types and versions come from a
later release. They are skipped, because they cannot change anything here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups.records import value_version as group_value_version
from penstock.protocol.codec import MalformedMessage, decode_from, encode
from penstock.protocol.declaration import Message
from penstock.protocol.messages import group_records, share_state_records, transaction_records
from penstock.transactions.records import value_version as transaction_value_version

RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]

KEY_VERSION = 0


class RecordFormat:
    """The format of the records of one internal topic."""

    def __init__(self, types: RecordTypes, value_version: Callable[[Any], int]) -> None:
        self._types = types
        self._numbers = {key: number for number, (key, _) in types.items()}
        self._value_version = value_version

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        number = self._numbers[type(record.key)]
        key = number.to_bytes(2, "big") + encode(record.key, KEY_VERSION)
        if record.value is None:
            return key, None
        version = self._value_version(record.value)
        return key, version.to_bytes(2, "big") + encode(record.value, version)

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
        """Returns None for a record of an unknown type or version; raises MalformedMessage for a known one that cannot
        be read. As in Kafka, trailing bytes are ignored."""
        if key is None or len(key) < 2 or (value is not None and len(value) < 2):
            raise MalformedMessage("a coordinator's record without its type or version")
        types = self._types.get(int.from_bytes(key[:2], "big", signed=True))
        if types is None:
            return None
        key_type, value_type = types
        decoded_key, _ = decode_from(key_type, key, KEY_VERSION, 2)
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        version = int.from_bytes(value[:2], "big", signed=True)
        versions = value_type.__schema__.versions
        if versions is None or version not in versions:
            return None
        decoded_value, _ = decode_from(value_type, value, version, 2)
        return CoordinatorRecord(decoded_key, decoded_value)


GROUP_RECORDS = RecordFormat(group_records.RECORD_TYPES, group_value_version)
TRANSACTION_RECORDS = RecordFormat(transaction_records.RECORD_TYPES, transaction_value_version)
SHARE_STATE_RECORDS = RecordFormat(share_state_records.RECORD_TYPES, lambda value: 0)
