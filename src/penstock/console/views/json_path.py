"""Paths into JSON, and conditions on them: `$.order.items[0].price > 10`, `status = "open"`, `customer.email`.

A condition compares text with text and numbers with numbers; a value of another type does not match. `~` is "contains".
A path alone asks whether there is such a field.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_STEP = re.compile(
    r"""\.?(?P<name>[^.\[\]\s=!<>~"']+)|\[(?P<index>-?\d+)\]|\[(?P<quote>["'])(?P<quoted>.*?)(?P=quote)\]"""
)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "~": lambda found, wanted: str(wanted) in str(found),
}

Path = tuple[str | int, ...]


class BadPath(ValueError):
    """A path or condition that cannot be read; the message is for the person who wrote it."""


class _Missing:
    pass


MISSING = _Missing()


def parse_path(text: str) -> Path:
    path, rest = _leading_path(text)
    if rest.strip():
        raise BadPath(f"{text!r} is not a path such as order.items[0].price")
    return path


def value_at(document: Any, path: Path) -> Any:
    """MISSING if there is nothing."""
    for step in path:
        is_field = isinstance(step, str) and isinstance(document, dict) and step in document
        if not is_field and not (
            isinstance(step, int) and isinstance(document, list) and -len(document) <= step < len(document)
        ):
            return MISSING
        document = document[step]
    return document


@dataclass(frozen=True, slots=True)
class Condition:
    path: Path
    operator: str = ""  # empty: the field exists
    wanted: str | float | bool | None = None

    def holds(self, document: Any) -> bool:
        found = value_at(document, self.path)
        if found is MISSING:
            return False
        if not self.operator:
            return True
        compare = _OPERATORS[self.operator]
        if self.operator == "~":
            return isinstance(found, str) and compare(found, self.wanted)
        if self.wanted is None or isinstance(self.wanted, bool) or found is None or isinstance(found, bool):
            same = type(found) is type(self.wanted) and found == self.wanted
            return same if self.operator == "=" else not same if self.operator == "!=" else False
        if isinstance(found, str) != isinstance(self.wanted, str) or not isinstance(found, str | int | float):
            return self.operator == "!="
        return compare(found, self.wanted)

    def necessary(self) -> list[bytes]:
        """Texts of which every matching document has all, unless it escapes characters: a quick first look."""
        texts = [f'"{step}"' for step in self.path if isinstance(step, str)]
        if self.operator == "=" and isinstance(self.wanted, str):
            texts.append(f'"{self.wanted}"')
        elif self.operator == "~":
            texts.append(str(self.wanted))
        return [text.encode() for text in texts if _is_plain(text.strip('"'))]

    def hidden(self) -> str:
        """A regular expression: a document without it has no other way to write the texts that are `necessary`.

        They are printable ASCII without quotes and backslashes. Of that, JSON can only write a slash in two ways, and
        any character as \\u00 and two digits. Other escapes, such as those of letters with accents, hide nothing.
        """
        slash = any(b"/" in text for text in self.necessary())
        return r"\\u00[2-7]|\\/" if slash else r"\\u00[2-7]"


def _is_plain(text: str) -> bool:
    """Whether JSON contains this text as it is, if its writer does not escape more than it must."""
    return text.isascii() and json.dumps(text) == f'"{text}"'


def parse_condition(text: str) -> Condition:
    path, rest = _leading_path(text)
    rest = rest.strip()
    if not rest:
        return Condition(path)
    for symbol in _OPERATORS:
        if rest.startswith(symbol):
            return Condition(path, symbol, _literal(rest.removeprefix(symbol).removeprefix("=").strip(), symbol))
    raise BadPath(f"{text!r}: after the path comes one of {' '.join(_OPERATORS)}")


def _literal(text: str, symbol: str) -> str | float | bool | None:
    if not text:
        raise BadPath("a value is missing after the comparison")
    if symbol == "~":
        return text.strip("\"'")
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if value is None or isinstance(value, str | int | float | bool) else text


def _leading_path(text: str) -> tuple[Path, str]:
    text = text.strip()
    position = 1 if text[:1] == "$" else 0
    steps: list[str | int] = []
    while match := _STEP.match(text, position):
        if match["name"] is not None:
            steps.append(match["name"])
        else:
            steps.append(int(match["index"]) if match["index"] is not None else match["quoted"])
        position = match.end()
    if not steps:
        raise BadPath(f"{text!r} is not a path such as order.items[0].price")
    return tuple(steps), text[position:]
