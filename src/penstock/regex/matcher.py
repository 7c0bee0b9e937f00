"""Matches names against a regular expression, in time bounded by the length of the names.

An expression is compiled to a machine that can be in several states at once, with one step per character. The sets of
states it has been in, and their successors, are cached: names look alike, so most steps are one look-up. An expression
designed to be in many states, and in different ones at each character, is refused when its work exceeds an allowance
that grows with the names it is matched against.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.regex.char_set import CharSet
from penstock.regex.parser import WORD, Assertion, Chars, Choice, InvalidRegex, Node, Repeat, Sequence, parse

# Limits on the size of an expression with its repetitions expanded, and on the number of cached sets of states.
MAX_STATES: Final = 20_000
MAX_REMEMBERED: Final = 2_000

# States visited: the initial allowance, a tenth of a second of work, and what each character adds to it.
FIRST_ALLOWANCE: Final = 400_000
CHARACTER_ALLOWANCE: Final = 2


class _Place(NamedTuple):
    """A place between two characters: the states reached there, and what can be asserted of the place."""

    states: frozenset[int]
    is_start: bool
    after_word: bool
    after_line: bool


@dataclass(slots=True, eq=False)
class _Position:
    """A place, whether a name may end there, and the successors found so far."""

    place: _Place
    is_final: bool
    following: dict[str, _Position] = field(default_factory=dict, init=False)


class Regex:
    def __init__(self, text: str) -> None:
        """Compile an expression; raise InvalidRegex if it is invalid."""
        # For each state: the characters it accepts, and the next state.
        self._steps: list[tuple[CharSet, int] | None] = []
        # For each state: the states it reaches without a character, and the condition for that.
        self._jumps: list[list[tuple[str, int]]] = []
        self._allowance = FIRST_ALLOWANCE
        self._accepting = self._state()
        first = self._compile(parse(text), self._accepting)
        self._start = self._position(_Place(frozenset((first,)), True, False, False))
        self._known: dict[_Place, _Position] = {}

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name; InvalidRegex if that takes too much work."""
        self._allowance += CHARACTER_ALLOWANCE * len(name)
        position = self._start
        for char in name:
            following = position.following.get(char)
            if following is None:
                following = self._follow(position, char)
            position = following
        return position.is_final

    def _position(self, place: _Place) -> _Position:
        return _Position(place, self._accepting in self._closure(place, following=""))

    def _follow(self, position: _Position, char: str) -> _Position:
        place = self._step(position.place, char)
        following = self._known.get(place)
        if following is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
                self._start.following.clear()
            following = self._known[place] = self._position(place)
        position.following[char] = following
        return following

    # -- the machine ---------------------------------------------------------------------------------------------------

    def _step(self, position: _Place, char: str) -> _Place:
        following = set()
        for state in self._closure(position, following=char):
            step = self._steps[state]
            if step is not None and char in step[0]:
                following.add(step[1])
        return _Place(frozenset(following), False, char in WORD, char == "\n")

    def _closure(self, position: _Place, *, following: str) -> set[int]:
        """Return the states of the machine before the following character, or at the end if there is none."""
        before_word = following != "" and following in WORD
        holds = {
            "": True,
            "^": position.is_start,
            "$": following == "",
            "m^": position.is_start or position.after_line,
            "m$": following in ("", "\n"),
            "b": position.after_word != before_word,
            "B": position.after_word == before_word,
        }
        found = set(position.states)
        pending = list(found)
        while pending:
            for condition, state in self._jumps[pending.pop()]:
                if holds[condition] and state not in found:
                    found.add(state)
                    pending.append(state)
        self._allowance -= len(found)
        if self._allowance < 0:
            raise InvalidRegex("matching it takes too much work")
        return found

    # -- compilation ---------------------------------------------------------------------------------------------------

    def _state(self) -> int:
        if len(self._steps) >= MAX_STATES:
            raise InvalidRegex("expression too large")
        self._steps.append(None)
        self._jumps.append([])
        return len(self._steps) - 1

    def _compile(self, node: Node, then: int) -> int:
        """Return the state from which the node is matched, followed by whatever `then` matches."""
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                then = self._compile(part, then)
            return then
        if isinstance(node, Repeat):
            return self._compile_repeat(node, then)
        state = self._state()
        if isinstance(node, Chars):
            self._steps[state] = (node.chars, then)
        elif isinstance(node, Assertion):
            self._jumps[state].append((node.kind, then))
        elif isinstance(node, Choice):
            for part in node.parts:
                self._jumps[state].append(("", self._compile(part, then)))
        return state

    def _compile_repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._state()
            self._jumps[loop].append(("", then))
            self._jumps[loop].append(("", self._compile(node.node, loop)))
            then = loop
        else:
            end = then
            for _ in range(node.most - node.least):
                optional = self._state()
                self._jumps[optional].append(("", end))
                self._jumps[optional].append(("", self._compile(node.node, then)))
                then = optional
        for _ in range(node.least):
            then = self._compile(node.node, then)
        return then
