"""Principals: the identity of the sender of a request."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# The principal of a connection that was not authenticated.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")
