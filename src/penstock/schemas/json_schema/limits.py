"""Limits of strings, numbers and sizes: what is refused is a limit that became narrower.

Changes are (keyword, rule, detail)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from penstock.schemas.json_schema.nodes import Number, Numeric, Text

Changes = Iterator[tuple[str, str, str]]


def text_changes(old: Text, new: Text) -> Changes:
    yield from size_changes("maxLength", "MAX_LENGTH", old.max_length, new.max_length, upper=True)
    yield from size_changes("minLength", "MIN_LENGTH", old.min_length, new.min_length, upper=False)
    if new.pattern is not None and new.pattern != old.pattern:
        rule = "PATTERN_ADDED" if old.pattern is None else "PATTERN_CHANGED"
        yield "pattern", rule, f"the pattern is {new.pattern!r:.100} now"


def numeric_changes(old: Numeric, new: Numeric) -> Changes:
    yield from size_changes("maximum", "MAXIMUM", old.maximum, new.maximum, upper=True)
    yield from size_changes("minimum", "MINIMUM", old.minimum, new.minimum, upper=False)
    limits = (old.exclusive_maximum, new.exclusive_maximum)
    yield from size_changes("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", *limits, upper=True)
    limits = (old.exclusive_minimum, new.exclusive_minimum)
    yield from size_changes("exclusiveMinimum", "EXCLUSIVE_MINIMUM", *limits, upper=False)
    yield from _multiple_of(old.multiple_of, new.multiple_of)
    if new.integer and not old.integer:
        yield "", "TYPE_NARROWED", "it was a number and is an integer"


def size_changes(keyword: str, rule: str, old: Number | None, new: Number | None, *, upper: bool) -> Changes:
    if new is None or old == new:
        return
    if old is None:
        yield keyword, f"{rule}_ADDED", f"it is {new} now"
    elif upper and new < old:
        yield keyword, f"{rule}_DECREASED", f"it was {old} and is {new}"
    elif not upper and new > old:
        yield keyword, f"{rule}_INCREASED", f"it was {old} and is {new}"


def _multiple_of(old: Number | None, new: Number | None) -> Changes:
    if new is None or old == new:
        return
    if old is None:
        yield "multipleOf", "MULTIPLE_OF_ADDED", f"it is {new} now"
        return
    # As they are written: 0.3 is a multiple of 0.1.
    before, after = Fraction(str(old)), Fraction(str(new))
    if after and (before / after).denominator == 1:
        return
    expanded = before and (after / before).denominator == 1
    rule = "MULTIPLE_OF_EXPANDED" if expanded else "MULTIPLE_OF_CHANGED"
    yield "multipleOf", rule, f"it was {old} and is {new}"
