"""Topic names: which are allowed."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import METADATA_TOPIC

MAX_NAME_LENGTH: Final = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

# Topics that belong to the brokers themselves.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def topic_name_problem(name: str) -> str | None:
    """Why a name cannot be a topic's, in Kafka's words; None if it can."""
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
    """As `check_topic_name`, and not the one name that is never created."""
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
