"""References to secrets: `${secret:env:NAME}` and `${secret:file:PATH}`.

A text with references is looked up only where the values are used. Revealed values are remembered, so that `redacted`
can remove them from messages of other software: errors of drivers often quote the URL that they could not reach.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from penstock.client.errors import ClientError

REFERENCE = re.compile(r"\$\{secret:([^}]*)\}")
SHOWN_INSTEAD = "***"

_KINDS = ("env", "file")
_SHORTEST_REDACTED = 4  # shorter ones occur everywhere, and redacting them hides nothing
_revealed: set[str] = set()


class SecretMissing(ClientError):
    """A reference without a value. The message names the reference; there is no value to show."""


def reveal(template: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with the values of its references; SecretMissing if there is none."""
    return REFERENCE.sub(lambda reference: _value(reference[1], environment), template)


def syntax_error(template: str) -> str | None:
    """The error in the references of a text; None if there is none."""
    for reference in REFERENCE.finditer(template):
        kind, separator, name = reference[1].partition(":")
        if kind not in _KINDS or not separator or not name:
            return f"{reference[0]} is not a secret; write ${{secret:env:NAME}} or ${{secret:file:PATH}}"
    return None


def redacted(text: str) -> str:
    """Without the values of all secrets that were revealed in this process."""
    for value in sorted(_revealed, key=len, reverse=True):
        text = text.replace(value, SHOWN_INSTEAD)
    return text


def _value(reference: str, environment: Mapping[str, str]) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        if name not in environment:
            raise SecretMissing(f"secret:env:{name}: the environment has no variable {name}")
        value = environment[name]
    elif kind == "file":
        try:
            with open(name, encoding="utf-8") as file:
                value = file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
            raise SecretMissing(f"secret:file:{name}: {reason}") from None
    else:
        raise SecretMissing(f"secret:{kind}: no such kind of secret; there are env and file")
    _revealed.update(each for each in (value, value.strip()) if len(each) >= _SHORTEST_REDACTED)
    return value
