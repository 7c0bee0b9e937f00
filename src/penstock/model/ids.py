"""Identifiers: topic ids and their text form, and topic partitions."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

# A Kafka UUID is its 16 bytes: hashable, comparable, and free to put on the wire.
Uuid = bytes

ZERO_UUID: Uuid = bytes(16)


def uuid_text(uuid: Uuid) -> str:
    """Format a UUID as Kafka does: 22 characters of URL-safe base64, unpadded."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> Uuid:
    try:
        uuid = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a Kafka UUID (22 characters of URL-safe base64)") from error
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a Kafka UUID (22 characters of URL-safe base64)")
    return uuid


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
