"""`--command-config` and `--profile`: how commands get client settings, without secrets on the command line.

Every command with `--bootstrap-server` has both options. They do not reach the commands: the address that a command
gets refers to the file or the profile (see `client.access`), and the clients resolve it.

The settings of a profile belong to its cluster, so its `bootstrap.servers` override the variable PENSTOCK_BOOTSTRAP;
`--bootstrap-server` overrides them.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Final, NamedTuple

import typer

CONFIG_VARIABLE: Final = "PENSTOCK_COMMAND_CONFIG"
PROFILE_VARIABLE: Final = "PENSTOCK_PROFILE"
BOOTSTRAP_VARIABLE: Final = "PENSTOCK_BOOTSTRAP"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_CONFIG: Final = "penstock.command-config"
_PROFILE: Final = "penstock.profile"


class Source(NamedTuple):
    """Where settings are: a profile or a path, as in a reference, and the option or variable that names it."""

    text: str
    origin: str
    is_variable: bool


def add_options(command: Any) -> None:
    """Add both options to every command below this one that talks to a cluster."""
    declaring = typer.Typer(add_completion=False)
    declaring.command()(_declared)
    _add(command, typer.main.get_command(declaring).params)


def _add(command: Any, options: list[Any]) -> None:
    if any(each.name == "bootstrap_server" for each in command.params):
        command.params += [each for each in options if each.name in ("command_config", "profile")]
    for child in getattr(command, "commands", {}).values():
        _add(child, options)


def _keep_config(context: typer.Context, value: str | None) -> None:
    context.meta[_CONFIG] = value


def _keep_profile(context: typer.Context, value: str | None) -> None:
    context.meta[_PROFILE] = value


def _declared(
    command_config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Client settings by Kafka's names: security.protocol, sasl.jaas.config, ... (or {CONFIG_VARIABLE}).",
            callback=_keep_config,
            expose_value=False,
            is_eager=True,
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"A cluster of profiles.toml: its addresses and client settings (or {PROFILE_VARIABLE}).",
            callback=_keep_profile,
            expose_value=False,
            is_eager=True,
            show_default=False,
        ),
    ] = None,
) -> None:
    """The options that many commands share."""


def reach(context: typer.Context, value: str | None) -> str | None:
    """The callback of `--bootstrap-server`: the addresses, with a reference to the settings.

    None if the option is not given and may be left out: only a source that is given as an option counts then.
    """
    source = _source(context)
    given = context.get_parameter_source("bootstrap_server")
    is_given = given is not None and given.name == "COMMANDLINE"
    if source is None or (value is None and source.is_variable):
        return value
    if is_given and value is not None:
        return _joined(value, source)
    from penstock.client.access import completed

    reference = f"@{source.text}"
    return reference if value is None else completed(reference, value)


def from_variables() -> tuple[str, str] | None:
    """The address that environment variables give, and the variable."""
    addresses = os.environ.get(BOOTSTRAP_VARIABLE)
    source = _from_environment()
    if source is None:
        return (addresses, BOOTSTRAP_VARIABLE) if addresses else None
    from penstock.client.access import completed

    return completed(f"@{source.text}", addresses or DEFAULT_BOOTSTRAP), source.origin


def _source(context: typer.Context) -> Source | None:
    config, profile = context.meta.get(_CONFIG), context.meta.get(_PROFILE)
    if config and profile:
        raise typer.BadParameter("--command-config and --profile contradict each other: give one of them")
    if config:
        return Source(_path(config), "--command-config", is_variable=False)
    if profile:
        return Source(profile, "--profile", is_variable=False)
    return _from_environment()


def _from_environment() -> Source | None:
    config, profile = os.environ.get(CONFIG_VARIABLE), os.environ.get(PROFILE_VARIABLE)
    if config and profile:
        raise typer.BadParameter(f"{CONFIG_VARIABLE} and {PROFILE_VARIABLE} contradict each other: set one of them")
    if config:
        return Source(_path(config), CONFIG_VARIABLE, is_variable=True)
    return Source(profile, PROFILE_VARIABLE, is_variable=True) if profile else None


def _joined(addresses: str, source: Source) -> str:
    from penstock.client.access import with_source

    if "@" not in addresses:
        return with_source(addresses, source.text)
    if source.is_variable:
        return addresses
    raise typer.BadParameter(f"{addresses} refers to settings, and so does {source.origin}: give one of them")


def _path(text: str) -> str:
    """Only with a slash is it a path in a reference."""
    return text if "/" in text else f"./{text}"
