"""What the page of messages asks for, from the parameters of its address: where to begin, which records, how many.

`windows` decides the order in which offsets are read: in pieces that double, from the beginning on, or backwards from
the end with each piece read forwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from penstock.console.views.json_path import BadPath, Condition, parse_condition
from penstock.model.ids import TopicPartition

Start = Literal["end", "beginning", "offset", "time"]

LIMITS = (20, 50, 100, 500)
LIMIT_DEFAULT = 50
FIRST_WINDOW = 2_000
WINDOW_MAX = 250_000

Ranges = dict[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    start: Start = "end"
    offset: int = 0
    since: datetime | None = None
    until: datetime | None = None
    partition: int | None = None
    limit: int = LIMIT_DEFAULT
    key: str = ""
    everywhere: bool = False
    """Look for the key in all partitions: its writer chose another partitioner, or the topic has grown."""
    text: str = ""
    header: str = ""
    where: str = ""
    condition: Condition | None = None
    follow: bool = False
    problems: tuple[str, ...] = ()

    @property
    def is_filtered(self) -> bool:
        return bool(self.key or self.text or self.header or self.condition or self.until)

    @property
    def newest_first(self) -> bool:
        return self.start == "end"

    @property
    def header_pair(self) -> tuple[str, str | None]:
        name, equals, value = self.header.partition("=")
        return name.strip(), value.strip() if equals else None

    def parameters(self) -> dict[str, str]:
        """The parameters that `parse_query` reads as this query, without those that are defaults."""
        given = {
            "from": "" if self.start == "end" else self.start,
            "offset": str(self.offset) if self.start == "offset" else "",
            "since": _time_text(self.since) if self.start == "time" else "",
            "until": _time_text(self.until),
            "partition": "" if self.partition is None else str(self.partition),
            "limit": "" if self.limit == LIMIT_DEFAULT else str(self.limit),
            "key": self.key,
            "everywhere": "1" if self.everywhere else "",
            "text": self.text,
            "header": self.header,
            "where": self.where,
            "follow": "1" if self.follow else "",
        }
        return {name: value for name, value in given.items() if value}


def parse_query(given: Mapping[str, str]) -> Query:
    """A parameter that makes no sense is left out, and named in `problems`."""
    problems: list[str] = []
    start = given.get("from", "end")
    if start not in ("end", "beginning", "offset", "time"):
        problems.append(f"from={start!r} is none of end, beginning, offset, time")
        start = "end"
    offset = _number(given.get("offset", ""), "offset", problems)
    since, until = (_time(given.get(name, ""), name, problems) for name in ("since", "until"))
    if start == "time" and since is None:
        problems.append("choose the time to begin at")
        start = "end"
    limit = _number(given.get("limit", ""), "limit", problems)
    condition = None
    if given.get("where", "").strip():
        try:
            condition = parse_condition(given["where"])
        except BadPath as error:
            problems.append(str(error))
    return Query(
        start=start,  # type: ignore[arg-type]  # checked above
        offset=offset or 0,
        since=since,
        until=until,
        partition=_number(given.get("partition", ""), "partition", problems),
        limit=limit if limit in LIMITS else LIMIT_DEFAULT,
        key=given.get("key", ""),
        everywhere=bool(given.get("everywhere")),
        text=given.get("text", ""),
        header=given.get("header", "").strip(),
        where=given.get("where", "").strip(),
        condition=condition,
        follow=bool(given.get("follow")),
        problems=tuple(problems),
    )


def windows(ranges: Ranges, *, newest_first: bool, first: int = FIRST_WINDOW) -> Iterator[Ranges]:
    """Every offset of the ranges once, in pieces that double up to a bound."""
    left = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
    length = first
    while left:
        if newest_first:
            yield {partition: (max(begin, end - length), end) for partition, (begin, end) in left.items()}
            left = {each: (begin, end - length) for each, (begin, end) in left.items() if end - length > begin}
        else:
            yield {partition: (begin, min(end, begin + length)) for partition, (begin, end) in left.items()}
            left = {each: (begin + length, end) for each, (begin, end) in left.items() if begin + length < end}
        length = min(length * 2, WINDOW_MAX)


def _number(text: str, name: str, problems: list[str]) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal() or len(text) > 19:
        problems.append(f"{name} {text!r} is not a number")
        return None
    return int(text)


def _time(text: str, name: str, problems: list[str]) -> datetime | None:
    """ISO 8601, in UTC if it has no zone, or milliseconds since 1970."""
    if not text.strip():
        return None
    try:
        if text.strip().isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        at = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError, OSError):
        problems.append(f"{name} {text!r} is not a time such as 2026-05-01T12:00:00Z")
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _time_text(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
