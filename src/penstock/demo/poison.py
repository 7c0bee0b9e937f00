"""Records that no pipeline can read, and what makes them readable again.

The story is one that happens: somebody's new firmware writes with the serializer of a schema registry, which puts five
bytes before the JSON (a zero and the number of a schema). The event is whole, and nobody can read it.
"""

from __future__ import annotations

HEADER = b"\x00\x00\x00\x00\x07"
WHAT = "five bytes of a schema registry before the JSON"


def spoil(value: bytes) -> bytes:
    return HEADER + value


def is_spoilt(value: bytes) -> bool:
    return value.startswith(HEADER)


def repair(value: bytes) -> bytes:
    return value.removeprefix(HEADER)
