"""The argument of `--add-scram`, as Kafka's storage tool has it.

SCRAM-SHA-256=[name=alice,password=...]
SCRAM-SHA-512=[name=alice,iterations=8192,salt="c2FsdA==",saltedpassword="..."]
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Callable
from typing import Final

from penstock.metadata.image import scram_record
from penstock.protocol.messages.metadata_records import UserScramCredentialRecord
from penstock.security.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    ScramUser,
    credential_of,
    salted_password,
)

_ARGUMENT: Final = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]", re.DOTALL)
_PAIR: Final = re.compile(r"\s*([a-z]+)=(?:\"([^\"]*)\"|([^,\"]*))\s*(?:,|$)")
_NAMES: Final = frozenset({"name", "password", "salt", "iterations", "saltedpassword"})
SALT_BYTES: Final = 24


class BadScramArgument(ValueError):
    """The argument is malformed. The message contains no secret."""


def scram_record_of(text: str, *, read_password: Callable[[str], str]) -> UserScramCredentialRecord:
    """`read_password` asks for the password of a user if the argument has none."""
    match = _ARGUMENT.fullmatch(text.strip())
    if match is None:
        raise BadScramArgument("a user is SCRAM-SHA-256=[name=...] or SCRAM-SHA-512=[name=...]")
    mechanism = ScramMechanism.of(match[1])
    assert mechanism is not None
    values = _values(match[2])
    name = values.get("name", "")
    if not name:
        raise BadScramArgument("the user has no name")
    iterations = _iterations(values.get("iterations", str(MIN_ITERATIONS)))
    salt = _base64("salt", values["salt"]) if "salt" in values else secrets.token_bytes(SALT_BYTES)
    if "saltedpassword" in values:
        if "password" in values or "salt" not in values:
            raise BadScramArgument("saltedpassword goes with salt, and without password")
        salted = _base64("saltedpassword", values["saltedpassword"])
    else:
        salted = salted_password(mechanism, values.get("password") or read_password(name), salt, iterations)
    return scram_record(ScramUser(name, mechanism), credential_of(mechanism, salted, salt, iterations))


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None or match[1] not in _NAMES or match[1] in values:
            raise BadScramArgument(f"inside the brackets are name=value, once each of {', '.join(sorted(_NAMES))}")
        values[match[1]] = match[2] if match[2] is not None else match[3].strip()
        position = match.end()
    return values


def _iterations(text: str) -> int:
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise BadScramArgument(f"iterations is between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    return int(text)


def _base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise BadScramArgument(f"{name} is not base64") from None
