"""Names that a simulated disk has created, moved or removed since they were last synced.

A power loss keeps some of them. A change survives only with all that it builds on: the earlier changes of the same
names and of the same file or directory. Changes below a directory that was removed are never synced, so there may be
thousands: related ones are found by an index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Generic, NamedTuple, Protocol, TypeVar

NodeT = TypeVar("NodeT")


class Directory(Protocol[NodeT]):
    durable: dict[str, NodeT]


class NameChange(NamedTuple, Generic[NodeT]):
    """Entries that change together or not at all. `node` is what is created, moved or removed."""

    entries: tuple[tuple[Directory[NodeT], str, NodeT | None], ...]
    node: NodeT

    def persist(self) -> None:
        for directory, name, node in self.entries:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node

    def subjects(self) -> list[tuple[int, str]]:
        """What it changes: names in directories, and a node."""
        return [(id(directory), name) for directory, name, _ in self.entries] + [(id(self.node), "")]


class NameChanges(Generic[NodeT]):
    def __init__(self) -> None:
        self._numbers = count()
        self._changes: dict[int, NameChange[NodeT]] = {}
        self._by_subject: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
        self._by_directory: defaultdict[int, set[int]] = defaultdict(set)

    def __iter__(self) -> Iterator[NameChange[NodeT]]:
        """In the order in which they were made."""
        return iter(self._changes.values())

    def add(self, change: NameChange[NodeT]) -> None:
        number = next(self._numbers)
        self._changes[number] = change
        for subject in change.subjects():
            self._by_subject[subject].add(number)
        for directory, _, _ in change.entries:
            self._by_directory[id(directory)].add(number)

    def clear(self) -> None:
        self._changes.clear()
        self._by_subject.clear()
        self._by_directory.clear()

    def take(self, directory: Directory[NodeT]) -> list[NameChange[NodeT]]:
        """Remove and return the changes of this directory and all that they build on."""
        numbers = self._with_what_they_build_on(self._by_directory.get(id(directory), ()))
        return [self._remove(number) for number in numbers]

    def with_what_they_build_on(self, chosen: Iterable[bool]) -> list[NameChange[NodeT]]:
        """`chosen` says of each change whether it is."""
        numbers = [number for number, is_chosen in zip(self._changes, chosen, strict=True) if is_chosen]
        return [self._changes[number] for number in self._with_what_they_build_on(numbers)]

    def _with_what_they_build_on(self, chosen: Iterable[int]) -> list[int]:
        found = set(chosen)
        open_ones = list(found)
        while open_ones:
            number = open_ones.pop()
            for subject in self._changes[number].subjects():
                earlier = {each for each in self._by_subject[subject] if each < number} - found
                found |= earlier
                open_ones += earlier
        return sorted(found)

    def _remove(self, number: int) -> NameChange[NodeT]:
        change = self._changes.pop(number)
        for subject in change.subjects():
            numbers = self._by_subject[subject]
            numbers.discard(number)
            if not numbers:
                del self._by_subject[subject]
        for directory, _, _ in change.entries:
            self._by_directory[id(directory)].discard(number)
            if not self._by_directory[id(directory)]:
                del self._by_directory[id(directory)]
        return change
