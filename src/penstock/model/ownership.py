"""Declares which classes belong to the event loop's thread.

A broker makes decisions on one thread, that of its event loop: logs, producers, replicas, sessions, shards, the
controller and so on belong to it. Worker threads wait for disks and do long work. The loop creates the work and passes
values and files, never objects that it may change meanwhile. `@owned_by_loop()` declares that the objects of a class
belong to the loop. `anywhere` names the few methods that are safe on any thread (for example `Log.read`,
`read_committed`, `flush`, searches by time), and `shared` the attributes that those may set.

The decorator only records the declaration and costs nothing. `penstock.io.threads` turns declarations into checks in
tests and in the simulator.
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
"""Called with every declaration that is made from now on."""


def owned_by_loop(*, anywhere: Iterable[str] = (), shared: Iterable[str] = ()) -> Callable[[Class], Class]:
    def note(owned: Class) -> Class:
        entry = Owned(owned, frozenset(anywhere), frozenset(shared))
        notes.append(entry)
        for listener in listeners:
            listener(entry)
        return owned

    return note
