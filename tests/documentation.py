"""Examples in pages of documentation.

In a `console` block, lines after `$ ` are commands (which go on after a backslash at the end of the line), and what
follows is their output, in which `...` stands for anything. A `text` block after a `python` block is what the program
prints.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

# Set-up of an environment that the tests already run in; `make` and `penstock up` are tried by tests of their own.
NOT_RUN = ("make ", "pip ", "python3 -m venv", ". .venv", "penstock up")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of each; there is one at least."""
    blocks: list[tuple[str, str]] = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks, page
    return blocks


def check_output(expected: str, actual: str, what: str) -> None:
    pattern = re.escape(expected.strip()).replace(r"\.\.\.", r".*")
    assert re.fullmatch(pattern, actual.strip(), re.DOTALL), f"{what}\nprints\n{actual}\nnot\n{expected}"


def run_console(block: str, run: Callable[[list[str]], subprocess.CompletedProcess[str]]) -> None:
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = step.replace("\\\n", "").partition("\n")
        if command.startswith(NOT_RUN):
            continue
        result = run(["bash", "-c", f"set -o pipefail; {command}"])
        assert result.returncode == 0, f"{command}\n{result.stderr}"
        check_output(expected, result.stdout, command)
