"""The words of a .proto text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.schemas.model import MAX_NESTING, InvalidSchema

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<identifier> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<float> (?: \d+\.\d* | \.\d+ ) (?:[eE][+-]?\d+)? [fF]? | \d+[eE][+-]?\d+ [fF]? | [1-9]\d*[fF] | 0[fF] )
    | (?P<integer> 0[xX][0-9a-fA-F]+ | \d+ )
    | (?P<string> "(?:[^"\\\n\0]|\\.)*" | '(?:[^'\\\n\0]|\\.)*' )
    | (?P<symbol> [-+{}\[\]()<>=;,.:/] )
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING = frozenset("{[(<")
_CLOSING = frozenset("}])>")
END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # of the groups above, or `END`
    text: str
    position: int


class Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._next]

    def take(self) -> Token:
        token = self._tokens[self._next]
        if token.kind != END:
            self._next += 1
        return token

    def skip(self, text: str) -> bool:
        """Takes the token if it is this symbol or word."""
        token = self._tokens[self._next]
        if token.text != text or token.kind == "string":
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        if not self.skip(text):
            raise self.error(f"expected {text!r}")

    def take_kind(self, kind: str) -> str:
        if self.next.kind != kind:
            raise self.error(f"expected an {kind}" if kind[0] in "ai" else f"expected a {kind}")
        return self.take().text

    def integer(self) -> int:
        """An integer with its sign; a leading zero makes it octal."""
        sign = -1 if self.skip("-") else 1
        return sign * whole(self.take_kind("integer"), self)

    def error(self, what: str) -> InvalidSchema:
        line = self._text.count("\n", 0, self.next.position) + 1
        found = "the end" if self.next.kind == END else f"{self.next.text!r:.50}"
        return InvalidSchema(f"line {line}: {what}, found {found}")


def whole(text: str, tokens: Tokens) -> int:
    octal = text.startswith("0") and text.isdigit() and len(text) > 1
    try:
        return int(text, 8) if octal else int(text, 0)
    except ValueError:  # 09, or more digits than Python takes
        raise tokens.error(f"{text:.50} is not a number") from None


def _tokens(text: str) -> list[Token]:
    found = []
    position, depth = 0, 0
    end = len(text)
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise InvalidSchema(f"line {line}: {text[position]!r} is not part of a .proto text")
        kind = match.lastgroup or ""
        if kind != "space":
            word = match[0]
            depth += (word in _OPENING) - (word in _CLOSING)
            if depth > MAX_NESTING:
                raise InvalidSchema(f"the schema is nested deeper than {MAX_NESTING} levels")
            found.append(Token(kind, word, position))
        position = match.end()
    return [*found, Token(END, "", position)]
