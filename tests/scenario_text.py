"""Scenarios as text: a command, `----`, and everything that came of it, up to the next empty line.

    init t
    ----
    record t Empty 1000/0
    reply NONE 1000/0

A test hands over the file and a function that executes a command and tells what happened, line by line. Lines that
start with `#` are comments. With `pytest --rewrite` the files are written anew with what happens now: read the
difference.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

Execute = Callable[[str], Iterable[str]]

SEPARATOR = "----"


def play(path: Path, execute: Execute, rewrite: bool) -> None:
    expected = path.read_text()
    actual = "".join(_replay(expected, execute))
    if rewrite and actual != expected:
        path.write_text(actual)
    elif actual != expected:
        difference = _difference(expected, actual)
        raise AssertionError(f"{os.path.relpath(path)} (--rewrite accepts what happens now)\n{difference}")


def _replay(text: str, execute: Execute) -> Iterable[str]:
    command: list[str] = []
    in_outcome = False
    for line in text.splitlines():
        if in_outcome:
            if not line:
                in_outcome = False
                yield "\n"
        elif line == SEPARATOR:
            yield f"{SEPARATOR}\n"
            yield from (f"{said}\n" for said in execute("\n".join(command)))
            command.clear()
            in_outcome = True
        else:
            if line and not line.startswith("#"):
                command.append(line)
            yield f"{line}\n"


def _difference(expected: str, actual: str) -> str:
    lines = difflib.unified_diff(expected.splitlines(), actual.splitlines(), "expected", "actual", lineterm="", n=6)
    return "\n".join(lines)
