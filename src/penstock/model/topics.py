"""Topic names: the internal topics, and the rules for valid names."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid

MAX_NAME_LENGTH: Final = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final[Uuid] = bytes(15) + b"\x01"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"

# Topics that belong to the brokers, and that clients may read.
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


def topic_name_problem(name: str) -> str | None:
    """Return why a topic name is invalid, in Kafka's words; None if it is valid."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def check_topic_name(name: str) -> None:
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def check_new_topic_name(name: str) -> None:
    """Like `check_topic_name`, but also refuse the one name that can never be created."""
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
