"""What Spark's SQL knows: functions, types, operators, intervals, formats and their options.

The tables are in `spark_sql.json`, which `docs/spark_sql.py` makes of the installed Spark. Reading them takes
milliseconds and no Spark.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from penstock.pipelines.spec.problems import nearest

_NUMBER = re.compile(r"[+-]?\s*(\d+(?:\.\d*)?|\.\d+)$")
_UNIT_MS = {"microsecond": 0.001, "millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000}
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    kind: str
    """`scalar`, `aggregate`, `window`, `generator` or `table`."""
    least: int
    most: int
    """The number of its arguments; -1: any number."""
    result: str
    """A type, if it is the same for all arguments."""

    def takes(self) -> str:
        """`1 argument`, `2 to 4 arguments`."""
        if self.most < 0:
            return f"at least {_arguments(self.least)}"
        if self.least == self.most:
            return _arguments(self.least) if self.least else "no arguments"
        return f"{self.least} {'or' if self.most == self.least + 1 else 'to'} {_arguments(self.most)}"


@cache
def _tables() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files(__package__) / "spark_sql.json").read_text("utf-8"))
    return found


def version() -> str:
    """The Spark that the tables are made of."""
    return str(_tables()["spark"])


@cache
def function(name: str) -> Function | None:
    """By its name in lower case."""
    found = _tables()["functions"].get(name)
    return Function(name, *found) if found is not None else None


def function_names() -> list[str]:
    return list(_tables()["functions"])


def is_aggregate(name: str) -> bool:
    found = function(name)
    return found is not None and found.kind == "aggregate"


def argument_kinds(name: str) -> dict[str, str] | None:
    """Of a function of one argument: the kinds it takes, and the kind of each result. None if they are not known."""
    found: dict[str, str] | None = _tables()["arguments"].get(name)
    return found


def operator_result(operator: str, left: str, right: str) -> str | None:
    """None if Spark refuses the operator for these kinds."""
    found: str | None = _tables()["operators"][operator].get(f"{left} {right}")
    return found


def kind_of_type(name: str) -> str | None:
    """`BIGINT`: bigint; `integer`: int. None if there is no such type."""
    found: str | None = _tables()["types"].get(name.lower())
    return found


def type_names() -> list[str]:
    return [name.upper() for name in _tables()["types"]]


def formats() -> list[str]:
    return list(_tables()["formats"])


def format_options(name: str) -> list[str]:
    """Of a format of files: the options that Spark declares."""
    return list(_tables()["options"].get(name, ()))


# -- Intervals.


@dataclass(frozen=True, slots=True)
class Interval:
    milliseconds: float
    has_months: bool


class IntervalInvalid(ValueError):
    pass


def parse_interval(text: str) -> Interval:
    """As Spark reads it, `1 hour 30 minutes`; IntervalInvalid with the reason."""
    words = re.sub(r"([+-])\s+", r"\1", text.strip().lower()).split()
    if words and words[0] == "interval":
        words = words[1:]
    if not words:
        raise IntervalInvalid(f"'{text}' is not an interval such as '5 minutes'")
    total, months = 0.0, False
    for index in range(0, len(words), 2):
        number = words[index]
        if not _NUMBER.match(number):
            raise IntervalInvalid(f"'{text}' is not an interval such as '5 minutes': \"{number}\" is not a number")
        if index + 1 == len(words):
            raise IntervalInvalid(f"'{text}' is not an interval such as '5 minutes': the unit is missing")
        unit = _unit(words[index + 1], text)
        if "." in number and unit != "second":
            raise IntervalInvalid(f"'{text}' is not an interval: only seconds may have a fraction")
        months = months or unit in ("year", "month")
        days = {"day": 1, "week": 7, "month": 30, "year": 365}.get(unit)
        total += float(number) * (days * _DAY_MS if days is not None else _UNIT_MS[unit])
    return Interval(total, months)


def unit_problem(word: str) -> str | None:
    """What is wrong with the unit of an interval; None if nothing is."""
    return None if _is_unit(word) else f'there is no unit "{word}"; {nearest(word, _tables()["units"])}'


def _unit(word: str, text: str) -> str:
    if not _is_unit(word):
        raise IntervalInvalid(f"'{text}' is not an interval: {unit_problem(word)}")
    return word if word in _tables()["units"] else word.removesuffix("s")


def _is_unit(word: str) -> bool:
    units = _tables()["units"]
    return word.lower() in units or word.lower().removesuffix("s") in units


def _arguments(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"
