"""Commands that pages show are commands that there are, with options that they have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import server
from penstock.cli.app import UsageError, application

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(?:\w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(penstock [^`\n]+)`(?!`)")
# What ends a command in a shell, and begins the next.
BETWEEN = {"|", "||", "&&", ";", "&", "(", ")", ">", ">>", "2>", "<"}
APPLICATION = application()


def words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an apostrophe in prose
        return []


def commands(line: str) -> Iterator[list[str]]:
    """The arguments of each `penstock` in a line of shell."""
    command: list[str] | None = None
    first = True
    for word in [*words(line), ";"]:
        if word in BETWEEN:
            if command is not None:
                yield command
            command, first = None, word not in {">", ">>", "2>", "<"}
        elif command is not None:
            command.append(word)
        else:
            command = [] if first and word == "penstock" else None
            first = first and (word == "$" or re.fullmatch(r"\w+=.*", word) is not None)


def shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    text = page.read_text(encoding="utf-8")
    for block in FENCED.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            for command in commands(line):
                yield line, command
    for inline in INLINE.findall(FENCED.sub("", text)):
        # In a table `|` between alternatives is escaped: penstock topics create\|list.
        for command in commands(inline.replace("\\|", "/")):
            yield inline, [*command, "..."]  # an option may stand without its value


def refusal(arguments: list[str]) -> str | None:
    """Why the command line would not take these, without doing anything."""
    command: Any = APPLICATION
    path = ["penstock"]
    rest = list(arguments)
    while getattr(command, "commands", None):
        if not rest or rest[0].startswith(("-", ".")) or rest[0].isupper():
            return None  # about commands in general
        name = rest.pop(0)
        alternatives = name.split("/")
        if unknown := [each for each in alternatives if each not in command.commands]:
            return f"{' '.join(path)} has no command {unknown[0]}"
        if len(alternatives) > 1:
            return None
        command = command.commands[name]
        path.append(name)
    if path[1:] == [server.NAME]:
        given = [word for word in rest if word.startswith("-") and word not in ("-o", "--override", "-h", "--help")]
        return f"penstock server has no {given[0]}" if given else None
    placeholders = re.compile(r"[\[\]]|\.\.\.")
    rest = [placeholders.sub("", word) or "ANYTHING" for word in rest]
    try:
        context = command.context_class(command, info_name=" ".join(path), **command.context_settings)
        command.make_parser(context).parse_args(rest)
    except UsageError as error:
        return f"{' '.join(path)}: {error}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist_and_take_these_options(page: Path) -> None:
    refused = [f"{line.strip()}: {why}" for line, command in shown(page) if (why := refusal(command))]
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("$ penstock topics creat orders", "penstock topics has no command creat"),
        ("seq 3 | penstock produce numbers --kee-separator :", "--kee-separator"),
        ("penstock topics create orders --partitions", "--partitions"),
        ("PENSTOCK_BOOTSTRAP=localhost:1 penstock server FILE --quick", "has no --quick"),
    ],
)
def test_what_is_wrong_is_found(line: str, why: str) -> None:
    (command,) = commands(line)
    assert why in str(refusal(command))
