"""Output of commands: tables for people, JSON for programs, one line for an error.

Results go to stdout, messages about them to stderr, so that a pipe carries only results.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, NoReturn, Protocol, TextIO, TypeVar

import typer

from penstock.cli.access import DEFAULT_BOOTSTRAP as DEFAULT_BOOTSTRAP
from penstock.cli.access import reach

T = TypeVar("T")


class _Group(Protocol):
    @property
    def group_id(self) -> str: ...


_GroupT = TypeVar("_GroupT", bound=_Group)

RESTART_S = 5.0
RETRY_S = 0.1

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Any broker of the cluster; or a reference, such as @prod for the profile prod.",
        callback=reach,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class CommandFailed(Exception):
    """Ends a command with one line on stderr."""


def command_group(help_text: str) -> typer.Typer:
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)


def fail(message: str) -> NoReturn:
    raise CommandFailed(message)


def note(message: str) -> None:
    """Print a message to stderr, beside the results."""
    print(message, file=sys.stderr, flush=True)


def patiently(action: Callable[[], T]) -> T:
    """Retry `action` while no broker can be reached: a restarting broker is back within seconds."""
    from penstock.client.errors import Unreachable

    deadline = time.monotonic() + RESTART_S
    is_noted = False
    while True:
        try:
            return action()
        except Unreachable as error:
            if time.monotonic() > deadline:
                raise
            if not is_noted:
                note(f"penstock: {error}; trying again for {RESTART_S:.0f} s")
                is_noted = True
            time.sleep(RETRY_S)


def quiet_librdkafka() -> logging.Logger:
    """librdkafka's logger, silenced: it logs every failed connection. The caller reports what matters."""
    logger = logging.getLogger("penstock.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def silence(stream: TextIO) -> None:
    """Discard further output: the reader is gone, and Python would fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(value: Any) -> None:
    print(json.dumps(value, default=_plain, ensure_ascii=False))


def print_groups(
    groups: Sequence[_GroupT],
    columns: Sequence[str],
    row: Callable[[_GroupT], Sequence[object]],
    *,
    kind: str,
    names_only: bool,
    json: bool,
) -> None:
    """The output of `groups list` and `share-groups list`."""
    if json:
        print_json(groups)
    elif names_only:
        for group in groups:
            print(group.group_id)
    elif groups:
        print_table(columns, map(row, groups))
    else:
        note(f"no {kind}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; numbers to the right. Plain text, so that it survives pipes and narrow terminals."""
    table = [[_cell(cell) for cell in row] for row in rows]
    if not table:
        return
    numeric = [
        all(row[index].lstrip("-").isdecimal() or row[index] == "-" for row in table) for index in range(len(columns))
    ]
    widths = [max(len(columns[index]), *(len(row[index]) for row in table)) for index in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(aligned).rstrip()

    header = line(columns)
    print(f"\x1b[1m{header}\x1b[0m" if coloured() else header)
    for row in table:
        print(line(row))


def coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def size_text(size: float) -> str:
    """Bytes in a readable unit: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def parse_pairs(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` options as a dict."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            fail(f"{option} {pair!r} is not KEY=VALUE")
        parsed[key.strip()] = value
    return parsed


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
