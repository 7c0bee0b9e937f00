r"""Regular expressions in the syntax of RE2, which is what Kafka takes for subscriptions, as trees.

RE2 leaves out what cannot be matched in linear time: back-references and looking around. Nothing here backtracks
either, so an expression from a stranger can be wrong and never slow; Python's own module, with its own syntax, would be
both.

Names of topics are made of few characters. A set of characters is therefore the set of those of them it contains, and
what can match none of them is simply empty.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")

# RE2's limits: of one repetition, and of nested ones together.
MAX_REPEAT: Final = 1000
MAX_NESTING: Final = 100


class InvalidRegex(ValueError):
    pass


class Chars(NamedTuple):
    """One character of the set."""

    chars: frozenset[str]


class Assertion(NamedTuple):
    """Matches between characters: `^` and `$` at the ends, `b` at the edge of a word, `B` anywhere else."""

    kind: str


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Choice(NamedTuple):
    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    node: Node
    least: int
    # None: any number.
    most: int | None


Node: TypeAlias = Chars | Assertion | Sequence | Choice | Repeat

_DIGITS = frozenset(string.digits)
WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_PERL: Final = {"d": _DIGITS, "w": WORD, "s": frozenset[str]()}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
# Of the general categories of Unicode, by their first letter.
_CATEGORIES: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
# Some scripts, those that people may name. Latin is the only one that topics are written in.
_SCRIPTS: Final = frozenset(("Arabic", "Armenian", "Cyrillic", "Georgian", "Greek", "Han", "Hangul", "Hebrew", "Thai"))
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


def parse(text: str) -> Node:
    """InvalidRegex, with what is wrong, for what is not an expression."""
    parser = _Parser(text)
    node = parser.choice(0)
    if parser.has_more:
        raise InvalidRegex("unexpected )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignores_case = False

    @property
    def has_more(self) -> bool:
        return self._at < len(self._text)

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._text[at] if at < len(self._text) else ""

    def _next(self, missing: str) -> str:
        if not self.has_more:
            raise InvalidRegex(missing)
        self._at += 1
        return self._text[self._at - 1]

    def _accept(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    # -- structure -----------------------------------------------------------------------------------------------------

    def choice(self, depth: int) -> Node:
        if depth > MAX_NESTING:
            raise InvalidRegex("expression nests too deeply")
        ignores_case = self._ignores_case
        parts = [self._sequence(depth)]
        while self._accept("|"):
            parts.append(self._sequence(depth))
        # Flags end with the group they were set in.
        self._ignores_case = ignores_case
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.has_more and self._peek() not in "|)":
            if self._accept(r"\Q"):
                literal, found, rest = self._text[self._at :].partition(r"\E")
                self._at = len(self._text) - len(rest) if found else len(self._text)
                parts.extend(Chars(self._cased(char)) for char in literal[:-1])
                if literal:
                    parts.append(self._repeated(Chars(self._cased(literal[-1]))))
                continue
            atom = self._atom(depth)
            if atom is not None:
                parts.append(self._repeated(atom))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self, depth: int) -> Node | None:
        """None for flags, which match nothing."""
        char = self._next("")
        if char == "(":
            return self._group(depth)
        if char == "[":
            return Chars(self._class())
        if char == ".":
            return Chars(ALPHABET)
        if char in "^$":
            return Assertion(char)
        if char in "*+?":
            raise InvalidRegex(f"missing argument to repetition operator: `{char}`")
        if char == "\\":
            return self._escape()
        return Chars(self._cased(char))

    def _group(self, depth: int) -> Node | None:
        ignores_case = self._ignores_case
        if self._accept("?"):
            if self._accept("P<") or (self._peek() == "<" and self._peek(1) not in "=!" and self._accept("<")):
                name = self._until(">", "invalid named capture")
                if not name or not all(char in WORD for char in name):
                    raise InvalidRegex("invalid named capture")
            elif self._flags():
                return None
        node = self.choice(depth + 1)
        self._ignores_case = ignores_case
        if not self._accept(")"):
            raise InvalidRegex("missing closing )")
        return node

    def _flags(self) -> bool:
        """True if they are all there is, and hold for the rest of the group they are in."""
        on, seen = True, False
        while True:
            char = self._next("missing closing )")
            if char in "imsU":
                seen = True
                if char == "i":
                    self._ignores_case = on
            elif char == "-" and on:
                on, seen = False, False
            elif char in ":)" and (on or seen):
                return char == ")"
            else:
                raise InvalidRegex(f"invalid or unsupported Perl syntax: `(?{char}`")

    # -- repetition ----------------------------------------------------------------------------------------------------

    def _repeated(self, node: Node) -> Node:
        last = ""
        while True:
            start = self._at
            bounds = self._bounds()
            if bounds is None:
                return node
            # Greedy or not, a name matches as a whole or not at all.
            self._accept("?")
            if last:
                raise InvalidRegex(f"invalid nested repetition operator: `{last}{self._text[start : self._at]}`")
            last = self._text[start : self._at]
            node = Repeat(node, *bounds)
            if _copies(node) > MAX_REPEAT:
                raise InvalidRegex(f"invalid repeat count: `{last}`")

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._accept("*"):
            return 0, None
        if self._accept("+"):
            return 1, None
        if self._accept("?"):
            return 0, 1
        return self._counts() if self._peek() == "{" else None

    def _counts(self) -> tuple[int, int | None] | None:
        """`{2}`, `{2,}`, `{2,4}`. Whatever else begins with a brace is just that character."""
        body, found, _ = self._text[self._at + 1 :].partition("}")
        least, comma, most = body.partition(",")
        if not found or not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at += len(body) + 2
        low = int(least) if len(least) < 5 else MAX_REPEAT + 1
        high = (int(most) if len(most) < 5 else MAX_REPEAT + 1) if most else (None if comma else low)
        if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
            raise InvalidRegex(f"invalid repeat count: `{{{body}}}`")
        return low, high

    # -- characters ----------------------------------------------------------------------------------------------------

    def _cased(self, char: str) -> frozenset[str]:
        found = {char, char.lower(), char.upper()} if self._ignores_case else {char}
        return ALPHABET & found

    def _escape(self) -> Node:
        char = self._next("trailing backslash at end of expression")
        if char in "Az":
            return Assertion("^" if char == "A" else "$")
        if char in "bB":
            return Assertion(char)
        if char == "C":
            return Chars(ALPHABET)
        found = self._escaped_set(char)
        return Chars(self._cased(self._escaped_char(char)) if found is None else found)

    def _escaped_set(self, char: str) -> frozenset[str] | None:
        if char.lower() in _PERL:
            found = _PERL[char.lower()]
            return found if char.islower() else ALPHABET - found
        if char in "pP":
            return self._property(negated=char == "P")
        return None

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            digits = self._until("}", "invalid escape sequence") if self._accept("{") else self._take(2)
            if not digits or len(digits) > 6 or not all(digit in string.hexdigits for digit in digits):
                raise InvalidRegex(rf"invalid escape sequence: `\x{digits}`")
            code = int(digits, 16)
            if code > 0x10FFFF:
                raise InvalidRegex(rf"invalid escape sequence: `\x{digits}`")
            return chr(code)
        if char == "0" or (char in "1234567" and self._peek() in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._take(1)
            return chr(int(digits, 8))
        if char.isascii() and not char.isalnum():
            return char
        raise InvalidRegex(rf"invalid escape sequence: `\{char}`")

    def _property(self, *, negated: bool) -> frozenset[str]:
        name = self._until("}", "invalid character class range") if self._accept("{") else self._take(1)
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name and name[0] in _CATEGORIES and (len(name) == 1 or name[1:] in tuple(_CATEGORIES[name[0]])):
            found = frozenset(char for char in ALPHABET if unicodedata.category(char).startswith(name))
        elif name in ("Any", "Latin", "Common"):
            letters = _POSIX["alpha"]
            found = {"Any": ALPHABET, "Latin": letters, "Common": ALPHABET - letters}[name]
        elif name in _SCRIPTS:
            found = frozenset()
        else:
            raise InvalidRegex(rf"invalid character class range: `\p{{{name}}}`")
        return ALPHABET - found if negated else found

    def _class(self) -> frozenset[str]:
        negated = self._accept("^")
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            if not self.has_more:
                raise InvalidRegex("missing closing ]")
            first = False
            found |= self._class_item()
        self._at += 1
        return ALPHABET - found if negated else ALPHABET & found

    def _class_item(self) -> frozenset[str]:
        if self._accept("[:"):
            name = self._until(":]", "missing closing ]")
            negated = name.startswith("^")
            posix = _POSIX.get(name.removeprefix("^"))
            if posix is None:
                raise InvalidRegex(f"invalid character class range: `[:{name}:]`")
            return ALPHABET - posix if negated else posix
        if self._peek() == "\\":
            at = self._at
            self._at += 1
            known = self._escaped_set(self._next("missing closing ]"))
            if known is not None:
                return known
            self._at = at
        low = self._class_char()
        if self._peek() != "-" or self._peek(1) in ("]", ""):
            return self._cased(low)
        self._at += 1
        high = self._class_char()
        if high < low:
            raise InvalidRegex(f"invalid character class range: `{low}-{high}`")
        inside: Callable[[str], bool] = lambda char: low <= char <= high  # noqa: E731
        if self._ignores_case:
            return frozenset(char for char in ALPHABET if inside(char.lower()) or inside(char.upper()))
        return frozenset(char for char in ALPHABET if inside(char))

    def _class_char(self) -> str:
        char = self._next("missing closing ]")
        return self._escaped_char(self._next("missing closing ]")) if char == "\\" else char

    # -- text ----------------------------------------------------------------------------------------------------------

    def _take(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def _until(self, end: str, missing: str) -> str:
        taken, found, _ = self._text[self._at :].partition(end)
        if not found:
            raise InvalidRegex(missing)
        self._at += len(taken) + len(end)
        return taken


def _is_number(text: str) -> bool:
    return bool(text) and all(char in string.digits for char in text)


def _copies(node: Node) -> int:
    """How often the innermost part of a node is repeated, by counts alone."""
    if isinstance(node, Repeat):
        most = node.least if node.most is None else node.most
        return max(most, 1) * _copies(node.node)
    if isinstance(node, Sequence | Choice):
        return max((_copies(part) for part in node.parts), default=1)
    return 1
