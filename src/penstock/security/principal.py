"""Principals: the identity of the sender of a request."""

from __future__ import annotations

from typing import Final, NamedTuple

STRING_BYTES_MAX: Final = 32767


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def is_storable(principal: Principal) -> bool:
    """Whether records can carry it as text. Names in tokens may be of any length, and contain half characters."""
    try:
        return principal == parse_principal(str(principal)) and len(str(principal).encode()) <= STRING_BYTES_MAX
    except ValueError:
        return False


def parse_principal(text: str) -> Principal:
    """Parse `User:alice`; the name may contain colons."""
    kind, separator, name = text.partition(":")
    if not separator or not kind or not name:
        raise ValueError(f"{text!r} is not a principal such as User:alice")
    return Principal(kind, name)


# The principal of a connection that was not authenticated.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")
