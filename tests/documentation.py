"""Examples in pages of documentation.

In a `console` block, lines after `$ ` are commands (which go on after a backslash at the end of the line), and what
follows is their output, in which `...` stands for anything. A `text` block after a `python` block is what the program
prints.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

# Set-up of an environment that the tests already run in; `make` and `penstock up` are tried by tests of their own.
NOT_RUN = ("make ", "pip ", "python3 -m venv", ". .venv", "penstock up")
_SHELL = re.compile(r"[|&;<>$`()*?\\~#!{}\[\]]")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of each; there is one at least."""
    blocks: list[tuple[str, str]] = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks, page
    return blocks


def check_output(expected: str, actual: str, what: str) -> None:
    pattern = re.escape(expected.strip()).replace(r"\.\.\.", r".*")
    assert re.fullmatch(pattern, actual.strip(), re.DOTALL), f"{what}\nprints\n{actual}\nnot\n{expected}"


Run = Callable[[list[str]], subprocess.CompletedProcess[str]]


def run_console(block: str, run: Run, run_penstock: Run | None = None) -> None:
    """`run_penstock`, if given, runs commands of ours that need no shell: most of the time of these commands would go
    to the start of a process."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = step.replace("\\\n", "").partition("\n")
        if command.startswith(NOT_RUN):
            continue
        if run_penstock is not None and (arguments := _plain(command)) is not None:
            result = run_penstock(arguments)
        else:
            result = run(["bash", "-c", f"set -o pipefail; {command}"])
        assert result.returncode == 0, f"{command}\n{result.stderr}"
        check_output(expected, result.stdout, command)


def _plain(command: str) -> list[str] | None:
    """The arguments of a command of `penstock` alone: no pipe, variable or pattern, and nothing that may start Java."""
    if not command.startswith("penstock ") or _SHELL.search(command):
        return None
    arguments = shlex.split(command)[1:]
    return None if arguments[0] == "pipeline" else arguments
