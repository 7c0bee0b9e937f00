"""Dead letters one by one: their place, what of them may be seen, and a value that was edited."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from penstock.console.views.decoding import depth
from penstock.console.views.masking import MaskRule, masked, paths_for
from penstock.pipelines.operate.dead_letters import Letter

EDITED_MAX = 1024 * 1024
_DEPTH_MAX = 100


class BadLetter(ValueError):
    """The letter cannot be edited, or not like this; the message says why."""


def parse_place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()) or len(text) > 30:
        raise BadLetter(f"{text[:40]!r} is not PARTITION:OFFSET")
    return int(partition), int(offset)


def seen_letter(letter: Letter, rules: Iterable[MaskRule]) -> Letter:
    """With the fields hidden that rules hide in its topic, or in the topic that the record came from."""
    rules = tuple(rules)
    paths = (*paths_for(letter.topic, rules), *(paths_for(letter.source, rules) if letter.source else ()))
    return replace(letter, value=masked(letter.value, paths)) if paths else letter


def editable(letter: Letter, rules: Iterable[MaskRule]) -> str:
    """The text to edit. BadLetter if its value is not text, is long, or has parts that are not shown."""
    value = letter.value or b""
    if seen_letter(letter, rules) != letter:
        raise BadLetter("Fields of this topic are hidden here, so its letters cannot be edited.")
    if len(value) > EDITED_MAX:
        raise BadLetter(f"Its value is longer than {EDITED_MAX // 1024} KiB, too long to be edited here.")
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise BadLetter("Its value is not text, and cannot be edited here.") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(document, dict | list) or depth(document) > _DEPTH_MAX:
        return text
    return json.dumps(document, ensure_ascii=False, indent=2)


def edited_value(text: str, *, must_be_json: bool) -> bytes:
    """The bytes to send. JSON is sent as it was typed, in one line if it was laid out in several."""
    text = text.replace("\r\n", "\n")
    if len(text) > EDITED_MAX:
        raise BadLetter(f"the edited value is longer than {EDITED_MAX // 1024} KiB")
    if not must_be_json:
        return text.encode(errors="replace")
    try:
        document = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise BadLetter(
            f"not JSON: {error.msg}, in line {error.lineno}, column {error.colno}; nothing was sent"
        ) from None
    except RecursionError:
        raise BadLetter("the JSON is nested too deeply; nothing was sent") from None
    return (json.dumps(document, ensure_ascii=False) if "\n" in text else text).encode(errors="replace")


def _refuse(constant: str) -> None:
    raise BadLetter(f"{constant} is not JSON; nothing was sent")
