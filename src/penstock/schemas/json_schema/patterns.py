"""Whether a pattern of `patternProperties` is found in the name of a property, in linear time.

Patterns come from clients, so they are matched by `penstock.regex`, which has RE2's syntax. A pattern that only a
backtracking engine understands is found in no name: what it would cover counts as not covered. Every property may have
to be looked for by every pattern, so both have a bound."""

from __future__ import annotations

from penstock.regex import InvalidRegex, Regex
from penstock.schemas.steps import TooManySteps

_MAX_PATTERNS = 200
_MAX_CHARACTERS = 1_000_000


class Patterns:
    def __init__(self) -> None:
        self._compiled: dict[str, Regex | None] = {}
        self._characters = 0

    def finds(self, pattern: str, name: str) -> bool:
        self._characters += 1 + len(name)
        if self._characters > _MAX_CHARACTERS or len(self._compiled) > _MAX_PATTERNS:
            raise TooManySteps
        if pattern not in self._compiled:
            try:
                self._compiled[pattern] = Regex(f"(?s:.*)(?:{pattern})(?s:.*)")
            except InvalidRegex:
                self._compiled[pattern] = None
        regex = self._compiled[pattern]
        if regex is None:
            return False
        try:
            return regex.matches(name)
        except InvalidRegex:  # it takes too much work
            return False
