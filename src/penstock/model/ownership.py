"""What belongs to the event loop.

A broker decides on one thread, that of its event loop. Worker threads wait for disks and do long work; what they are
given are values and files, never what the loop changes meanwhile. `@owned_by_loop()` says of a class that its objects
are the loop's. `anywhere` names the few methods that are written for any thread, and `shared` the attributes that those
may set.

The decorator is a note and costs nothing. `penstock.io.threads` turns the notes into checks where tests want that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

Class = TypeVar("Class", bound=type)


class Owned(NamedTuple):
    owned: type
    anywhere: frozenset[str]
    shared: frozenset[str]


notes: list[Owned] = []
listeners: list[Callable[[Owned], None]] = []
"""Told of every note that is made from now on."""


def owned_by_loop(*, anywhere: Iterable[str] = (), shared: Iterable[str] = ()) -> Callable[[Class], Class]:
    def note(owned: Class) -> Class:
        entry = Owned(owned, frozenset(anywhere), frozenset(shared))
        notes.append(entry)
        for listener in listeners:
            listener(entry)
        return owned

    return note
