r"""Parses regular expressions in RE2's syntax, which Kafka accepts from clients, into trees.

RE2 leaves out what cannot be matched in linear time: back-references and look-around. Nothing here backtracks either,
so an expression from an untrusted client can be wrong but never slow. Python's `re`, with its own syntax, could be
both.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple, TypeAlias

from penstock.regex.char_set import CharSet, of_category, union

# RE2's limits on one repetition, and on the product of nested ones.
MAX_REPEAT: Final = 1000
MAX_NESTING: Final = 100
# The number of ranges and characters that may be looked at to build the sets of an expression, a tenth of a second of
# work: a set of four characters in the expression, like `\pL`, may have thousands.
MAX_SET_WORK: Final = 100_000


class InvalidRegex(ValueError):
    pass


class Chars(NamedTuple):
    """One character of the set."""

    chars: CharSet


class Assertion(NamedTuple):
    """A match between characters: `^` and `$` at the ends, `m^` and `m$` also at the ends of lines, `b` at a word
    boundary, `B` anywhere else."""

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

_ANY: Final = ~CharSet()
_DIGITS: Final = CharSet.of(string.digits)
_LETTERS: Final = CharSet.of(string.ascii_letters)
WORD: Final = _LETTERS | _DIGITS | CharSet.of("_")
_PERL: Final = {"d": _DIGITS, "w": WORD, "s": CharSet.of("\t\n\f\r ")}
_POSIX: Final = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": CharSet.between("\0", "\x7f"),
    "blank": CharSet.of("\t "),
    "cntrl": CharSet.between("\0", "\x1f") | CharSet.of("\x7f"),
    "digit": _DIGITS,
    "graph": CharSet.between("!", "~"),
    "lower": CharSet.of(string.ascii_lowercase),
    "print": CharSet.between(" ", "~"),
    "punct": CharSet.of(string.punctuation),
    "space": CharSet.of(string.whitespace),
    "upper": CharSet.of(string.ascii_uppercase),
    "word": WORD,
    "xdigit": CharSet.of(string.hexdigits),
}
# The general categories of Unicode, by their first letter.
_CATEGORIES: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
# The scripts that users are likely to name, by their blocks.
_SCRIPTS: Final = {
    "Arabic": ((0x600, 0x700), (0x750, 0x780), (0x8A0, 0x900), (0xFB50, 0xFE00), (0xFE70, 0xFF00)),
    "Armenian": ((0x530, 0x590), (0xFB13, 0xFB18)),
    "Cyrillic": ((0x400, 0x530), (0x1C80, 0x1C90), (0x2DE0, 0x2E00), (0xA640, 0xA6A0)),
    "Georgian": ((0x10A0, 0x1100), (0x1C90, 0x1CC0), (0x2D00, 0x2D30)),
    "Greek": ((0x370, 0x400), (0x1F00, 0x2000)),
    "Han": ((0x2E80, 0x2FE0), (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, 0x323B0)),
    "Hangul": ((0x1100, 0x1200), (0x3130, 0x3190), (0xA960, 0xA980), (0xAC00, 0xD800)),
    "Hebrew": ((0x590, 0x600), (0xFB1D, 0xFB50)),
    "Hiragana": ((0x3041, 0x30A0),),
    "Katakana": ((0x30A0, 0x3100), (0x31F0, 0x3200)),
    "Latin": (
        (0x41, 0x5B), (0x61, 0x7B), (0xAA, 0xAB), (0xBA, 0xBB), (0xC0, 0xD7), (0xD8, 0xF7), (0xF8, 0x2B9),
        (0x1E00, 0x1F00), (0x2C60, 0x2C80), (0xA722, 0xA788), (0xFB00, 0xFB07), (0xFF21, 0xFF3B), (0xFF41, 0xFF5B),
    ),
    "Thai": ((0xE01, 0xE3B), (0xE40, 0xE5C)),
}  # fmt: skip
_CONTROL: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


def parse(text: str) -> Node:
    """Parse an expression; raise InvalidRegex, with the reason, if it is invalid."""
    parser = _Parser(text)
    node = parser.choice(0)
    if parser.has_more:
        raise InvalidRegex("unexpected )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # The active flags: i (ignore case), m (`^` and `$` also match at lines), s (a dot matches the end of a line).
        self._flags = frozenset[str]()
        self._names: set[str] = set()
        self._set_work_left = MAX_SET_WORK

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
        flags = self._flags
        parts = [self._sequence(depth)]
        while self._accept("|"):
            parts.append(self._sequence(depth))
        # Flags apply until the end of the group in which they were set.
        self._flags = flags
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.has_more and self._peek() not in "|)":
            if self._accept(r"\Q"):
                literal, found, rest = self._text[self._at :].partition(r"\E")
                self._at = len(self._text) - len(rest) if found else len(self._text)
                parts.extend(Chars(self._cased(CharSet.of(char))) for char in literal[:-1])
                if literal:
                    parts.append(self._repeated(Chars(self._cased(CharSet.of(literal[-1])))))
                continue
            start = self._at
            if parts and self._bounds() is not None:
                # Flags came in between: the repetition applies to the item before them.
                self._at = start
                parts.append(self._repeated(parts.pop()))
                continue
            atom = self._atom(depth)
            if atom is not None:
                parts.append(self._repeated(atom))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self, depth: int) -> Node | None:
        """Parse an atom; None for flags, which match nothing."""
        char = self._next("")
        if char == "(":
            return self._group(depth)
        if char == "[":
            return Chars(self._class())
        if char == ".":
            return Chars(_ANY if "s" in self._flags else ~CharSet.of("\n"))
        if char in "^$":
            return Assertion(f"m{char}" if "m" in self._flags else char)
        self._at -= 1
        if self._bounds() is not None:
            raise InvalidRegex(f"missing argument to repetition operator: `{char}`")
        self._at += 1
        if char == "\\":
            return self._escape()
        return Chars(self._cased(CharSet.of(char)))

    def _group(self, depth: int) -> Node | None:
        flags = self._flags
        if self._accept("?"):
            if self._accept("P<") or (self._peek() == "<" and self._peek(1) not in "=!" and self._accept("<")):
                name = self._until(">", "invalid named capture")
                if not name or not all(char in WORD for char in name):
                    raise InvalidRegex("invalid named capture")
                if name in self._names:
                    raise InvalidRegex(f"duplicate capture group name: `{name}`")
                self._names.add(name)
            elif self._set_flags():
                return None
        node = self.choice(depth + 1)
        self._flags = flags
        if not self._accept(")"):
            raise InvalidRegex("missing closing )")
        return node

    def _set_flags(self) -> bool:
        """Parse flags. True if there is nothing else, so that they apply to the rest of their group."""
        on, seen = True, False
        while True:
            char = self._next("missing closing )")
            if char in "imsU":
                seen = True
                self._flags = self._flags | {char} if on else self._flags - {char}
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
            # Greedy or not makes no difference: a name matches as a whole or not at all.
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
        """Parse `{2}`, `{2,}`, `{2,4}`. Any other text that begins with a brace is literal."""
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

    def _cased(self, chars: CharSet) -> CharSet:
        if "i" not in self._flags:
            return chars
        self._work(chars.case_work)
        return chars.ignoring_case()

    def _work(self, size: int) -> None:
        self._set_work_left -= size
        if self._set_work_left < 0:
            raise InvalidRegex("expression too large")

    def _escape(self) -> Node:
        char = self._next("trailing backslash at end of expression")
        if char in "Az":
            return Assertion("^" if char == "A" else "$")
        if char in "bB":
            return Assertion(char)
        found = self._escaped_set(char)
        return Chars(self._cased(CharSet.of(self._escaped_char(char))) if found is None else found)

    def _escaped_set(self, char: str) -> CharSet | None:
        if char.lower() in _PERL:
            found = self._cased(_PERL[char.lower()])
            return found if char.islower() else ~found
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
        if not (char.isascii() and char.isalnum()):
            return char
        raise InvalidRegex(rf"invalid escape sequence: `\{char}`")

    def _property(self, *, negated: bool) -> CharSet:
        name = self._until("}", "invalid character class range") if self._accept("{") else self._take(1)
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name and name[0] in _CATEGORIES and (len(name) == 1 or name[1:] in tuple(_CATEGORIES[name[0]])):
            found = of_category(name)
        elif name == "Any":
            found = _ANY
        elif name == "Common":
            found = ~union((of_category("L"), of_category("M"), of_category("C")))
        elif name in _SCRIPTS:
            found = CharSet.of_ranges(_SCRIPTS[name])
        else:
            raise InvalidRegex(rf"invalid character class range: `\p{{{name}}}`")
        self._work(len(found.boundaries))
        found = self._cased(found)
        return ~found if negated else found

    def _class(self) -> CharSet:
        negated = self._accept("^")
        items: list[CharSet] = []
        while not items or self._peek() != "]":
            if not self.has_more:
                raise InvalidRegex("missing closing ]")
            items.append(self._class_item())
        self._at += 1
        self._work(sum(len(item.boundaries) for item in items))
        found = union(items)
        return ~found if negated else found

    def _class_item(self) -> CharSet:
        if self._accept("[:"):
            name = self._until(":]", "missing closing ]")
            posix = _POSIX.get(name.removeprefix("^"))
            if posix is None:
                raise InvalidRegex(f"invalid character class range: `[:{name}:]`")
            posix = self._cased(posix)
            return ~posix if name.startswith("^") else posix
        if self._peek() == "\\":
            at = self._at
            self._at += 1
            known = self._escaped_set(self._next("missing closing ]"))
            if known is not None:
                return known
            self._at = at
        low = high = self._class_char()
        if self._peek() == "-" and self._peek(1) not in ("]", ""):
            self._at += 1
            high = self._class_char()
        if high < low:
            raise InvalidRegex(f"invalid character class range: `{low}-{high}`")
        return self._cased(CharSet.between(low, high))

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
    """Return how often the counts repeat the innermost part of a node."""
    if isinstance(node, Repeat):
        most = node.least if node.most is None else node.most
        return max(most, 1) * _copies(node.node)
    if isinstance(node, Sequence | Choice):
        return max((_copies(part) for part in node.parts), default=1)
    return 1
