"""Sets of characters over all of Unicode.

A set is the sorted list of the code points at which runs of its characters start and end: `a-c` is (97, 100). So the
complement of a set, and the test for a character, are cheap however large the set is.
"""

from __future__ import annotations

import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Final

END: Final = sys.maxunicode + 1
# Planes 4 to 13 of Unicode are empty, and only the first two have letters with a case.
_PLANES: Final = (0, 1, 2, 3, 14, 15, 16)
_CASED_END: Final = 0x20000


@dataclass(frozen=True, slots=True)
class CharSet:
    boundaries: tuple[int, ...] = ()

    @classmethod
    def of(cls, chars: Iterable[str]) -> CharSet:
        return cls.of_ranges((ord(char), ord(char) + 1) for char in chars)

    @classmethod
    def between(cls, low: str, high: str) -> CharSet:
        """Return the characters from `low` to `high`, both included."""
        return cls((ord(low), ord(high) + 1))

    @classmethod
    def of_ranges(cls, ranges: Iterable[tuple[int, int]]) -> CharSet:
        """Return a set of ranges, each from its first code point to the one after its last; ranges may overlap."""
        boundaries: list[int] = []
        for first, end in sorted(ranges):
            if boundaries and first <= boundaries[-1]:
                boundaries[-1] = max(boundaries[-1], end)
            else:
                boundaries += (first, end)
        return cls(tuple(boundaries))

    def __contains__(self, char: str) -> bool:
        return bisect_right(self.boundaries, ord(char)) % 2 == 1

    def __or__(self, other: CharSet) -> CharSet:
        return union((self, other))

    def __invert__(self) -> CharSet:
        inner = self.boundaries
        inner = inner[1:] if inner[:1] == (0,) else (0, *inner)
        return CharSet(inner[:-1] if inner[-1:] == (END,) else (*inner, END))

    @property
    def ranges(self) -> Iterable[tuple[int, int]]:
        return zip(self.boundaries[::2], self.boundaries[1::2], strict=True)

    @property
    def size(self) -> int:
        return sum(end - first for first, end in self.ranges)

    @property
    def case_work(self) -> int:
        """The number of ranges and characters that `ignoring_case` looks at."""
        return len(self.boundaries) + min(self.size, len(_alike()))

    def ignoring_case(self) -> CharSet:
        """Return the set with all characters that differ only by case from one in it."""
        alike = _alike()
        if self.size < len(alike):
            inside: Iterable[str] = (chr(code) for span in self.ranges for code in range(*span))
        else:
            inside = (char for char in alike if char in self)
        return self | CharSet.of(char for each in inside for char in alike.get(each, ""))


def union(sets: Iterable[CharSet]) -> CharSet:
    return CharSet.of_ranges(span for each in sets for span in each.ranges)


def of_category(name: str) -> CharSet:
    """Return the characters of a general category of Unicode; one letter means all categories that begin with it."""
    return union(found for category, found in _categories().items() if category.startswith(name))


@cache
def _categories() -> dict[str, CharSet]:
    ranges: dict[str, list[tuple[int, int]]] = {}
    for plane in _PLANES:
        first = plane << 16
        for category, chars in groupby(map(unicodedata.category, map(chr, range(first, first + 0x10000)))):
            end = first + sum(1 for _ in chars)
            ranges.setdefault(category, []).append((first, end))
            first = end
    return {category: CharSet.of_ranges(found) for category, found in ranges.items() if category != "Cn"}


@cache
def _alike() -> dict[str, str]:
    """Return the characters that have a case, with those that differ from them only by case."""
    groups: dict[str, str] = {}
    for char in map(chr, range(_CASED_END)):
        folded = char.casefold()
        if folded != char and len(folded) == 1:
            groups[folded] = groups.get(folded, folded) + char
    return {char: group for group in groups.values() for char in group}
