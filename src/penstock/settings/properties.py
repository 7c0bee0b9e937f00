"""Parser and formatter for Java's .properties format, as far as Kafka's files use it."""

from __future__ import annotations

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Parse `key=value` lines (or `key: value`, or `key value`), # and ! comments, trailing-backslash continuations.

    A later line for the same key wins, as in Java.
    """
    properties: dict[str, str] = {}
    lines = iter(text.splitlines())
    for raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value).strip()
    return properties


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    escaped = False
    for index, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=: \t\f":
            rest = line[index:].lstrip(" \t\f")
            if rest[:1] in ("=", ":"):
                rest = rest[1:]
            return line[:index], rest.lstrip(" \t\f")
    return line, ""


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        if character != "\\" or index + 1 == len(text):
            out.append(character)
            index += 1
            continue
        following = text[index + 1]
        digits = text[index + 2 : index + 6]
        if following == "u" and len(digits) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            out.append(chr(int(digits, 16)))
            index += 6
        else:
            out.append(_ESCAPES.get(following, following))
            index += 2
    return "".join(out)
