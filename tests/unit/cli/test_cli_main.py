"""What all commands have in common: help that teaches, errors in one line, a quick start."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from penstock import __version__
from penstock.cli.app import application
from penstock.local.ports import free_ports

if TYPE_CHECKING:
    from conftest import CommandLine


def commands(command: Any = None, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command that does something, by its path."""
    command = command or application()
    inner = getattr(command, "commands", None)
    if not inner:
        return [path]
    return [found for name, child in inner.items() for found in commands(child, (*path, name))]


def test_the_contract_is_complete() -> None:
    assert {" ".join(path) for path in commands()} >= {
        "up",
        "server",
        "topics create",
        "topics list",
        "topics describe",
        "topics alter",
        "topics delete",
        "produce",
        "consume",
        "log dump",
        "cluster describe",
        "demo",
    }


@pytest.mark.parametrize("path", [path for path in commands() if path != ("server",)], ids=" ".join)
def test_help_has_an_example(path: tuple[str, ...], cli: CommandLine) -> None:
    result = cli(*path, "--help")
    assert result.status == 0
    assert "Example" in result.out
    assert f"penstock {' '.join(path)}" in " ".join(result.out.split())


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_client_settings_are_never_ignored(path: tuple[str, ...]) -> None:
    """Where `--command-config` is offered, the address refers to it: `access.reach` sees to that."""
    command: Any = application()
    for name in path:
        command = command.commands[name]
    options = {option.name: option for option in command.params}
    assert ("bootstrap_server" in options) == ("command_config" in options)
    assert "bootstrap_server" not in options or options["bootstrap_server"].callback is not None


def test_help_of_the_server(cli: CommandLine) -> None:
    with pytest.raises(SystemExit) as ended:
        cli("server", "--help")
    assert ended.value.code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topics", "creat", "x"],
        ["topics", "create"],
        ["topics", "create", "x", "--partitions", "many"],
        ["consume", "x", "--max-messages", "0"],
        ["topics", "list", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line(arguments: list[str], cli: CommandLine) -> None:
    result = cli(*arguments)
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("penstock: ")
    assert result.err.count("\n") == 1
    assert "--help)" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "create", "x"],
        ["topics", "describe", "x"],
        ["topics", "alter", "x", "-p", "2"],
        ["topics", "delete", "x"],
        ["cluster", "describe"],
        ["produce", "x"],
        ["consume", "x"],
        ["bench", "produce"],
    ],
    ids=" ".join,
)
def test_no_broker_is_one_line(arguments: list[str], cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.output.RESTART_S", 0.0)
    port = free_ports(1)[0]
    result = cli(*arguments, "--bootstrap-server", f"127.0.0.1:{port}")
    assert result.status == 1
    assert result.out == ""
    assert result.err == f"penstock: cannot connect to 127.0.0.1:{port}: Connection refused\n"


def test_the_environment_names_the_cluster(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "127.0.0.1:1")
    assert "127.0.0.1:1" in cli("topics", "list").err


def test_version(cli: CommandLine) -> None:
    assert cli("--version").out == f"penstock {__version__}\n"


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    heavy = {"confluent_kafka", "uvloop", "penstock.broker", "penstock.protocol.apis", "rich.progress"}
    loaded = "import sys, penstock.cli.app as app; app.application(); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert not heavy & set(result.stdout.split())


def test_the_table_of_commands_has_their_summaries() -> None:
    """A run builds one command; what it says of the others is what they say of themselves."""
    built, listed = application().commands, application("").commands
    assert list(built) == list(listed)
    for name, command in built.items():
        assert listed[name].help == command.help.split("\n\n")[0], name
        assert listed[name].rich_help_panel == command.rich_help_panel


def test_a_command_loads_what_it_uses() -> None:
    """Imports are most of the time that a quick command takes."""
    modules = modules_of("topics", "list")
    assert "penstock.client.wire.admin.topics" in modules
    others = {"penstock.cli.pipeline", "penstock.client.wire.admin.groups", "penstock.protocol.messages.produce"}
    assert not {*others, "penstock.security.sasl.logins", "urllib.request", "tomllib"} & modules


@pytest.mark.parametrize("command", ["pipeline list", "spark status"])
def test_what_shows_queries_does_not_load_what_runs_them(command: str) -> None:
    assert not {"pyspark", "pyarrow", "numba", "numpy", "penstock.arrow"} & modules_of(*command.split())


def modules_of(*arguments: str) -> set[str]:
    """What a command has imported when it finds no broker."""
    (port,) = free_ports(1)
    command = [*arguments, "-b", f"127.0.0.1:{port}"]
    loaded = f"import sys, penstock.cli.main as main; main.run({command}); print(*sys.modules)"
    untraced = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, env=untraced)
    return set(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--brokers", "0"], "x>=1"),
        (["up", "--brokers", "many"], "valid integer"),
        (["cluster", "drain", "one"], "valid integer"),
        (["log-dirs", "describe", "--broker", "x"], "valid integer"),
    ],
    ids=" ".join,
)
def test_values_that_are_not_plain_are_checked(arguments: list[str], message: str, cli: CommandLine) -> None:
    result = cli(*arguments)
    assert result.status == 2
    assert message in result.err or "greater than or equal to 1" in result.err


def test_a_node_starts_without_the_rest_of_the_command_line() -> None:
    loaded = "import sys, penstock.cli.main; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert not {"typer", "rich", "pydantic"} & set(result.stdout.split())
