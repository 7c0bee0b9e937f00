"""Lists that one can search by words of a name, sort by a column, and page through.

The query of the address says how: `q` has the words, `sort` the column (`-lag`: the largest first), `page` the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

ROWS_PER_PAGE = 100
_PAGE_DIGITS_MAX = 9


class Named(Protocol):
    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=Named)
Sorts = Mapping[str, Callable[[Row], Any]]


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    rows: tuple[Row, ...]
    """Of this page."""
    found: int
    """How many match the search."""
    all: int
    page: int
    pages: int
    search: str
    sort: str
    descending: bool


def search_of(given: Mapping[str, str]) -> str:
    return given.get("q", "").strip()


def matches(name: str, search: str) -> bool:
    """Whether every word of the search is in the name."""
    lower = name.lower()
    return all(word in lower for word in search.lower().split())


def listing(rows: Iterable[Row], count: int, sorts: Sorts[Row], given: Mapping[str, str], default: str) -> Listing[Row]:
    """A page of the rows that match the search, out of `count`. `default` is the sort of an address without one."""
    sort = given.get("sort", default)
    descending = sort.startswith("-")
    column = sort.removeprefix("-") if sort.removeprefix("-") in sorts else default.removeprefix("-")
    ordered = sorted(rows, key=lambda row: row.name)
    ordered.sort(key=sorts[column], reverse=descending)
    pages = max(1, -(-len(ordered) // ROWS_PER_PAGE))
    wanted = given.get("page", "1")
    page = min(pages, max(1, int(wanted))) if wanted.isdecimal() and len(wanted) <= _PAGE_DIGITS_MAX else 1
    shown = tuple(ordered[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE])
    return Listing(shown, len(ordered), count, page, pages, search_of(given), column, descending)
