"""The command tree: all command groups in one typer application."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock import __version__
from penstock.cli import (
    access,
    acls,
    bench,
    certificates,
    client_metrics,
    cluster,
    console,
    consume,
    demo,
    doctor,
    features,
    formatting,
    groups,
    log,
    log_dirs,
    pipeline,
    produce,
    quotas,
    registry,
    schemas,
    server,
    share_groups,
    spark,
    tokens,
    top,
    topics,
    transactions,
    up,
    users,
)

# Wrong usage; typer does not export the class.
UsageError: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "UsageError")

_HELP = """Kafka in Python: run brokers, and work with any Kafka-compatible cluster.

Get started, in two terminals:

    penstock up
    echo hello | penstock produce greetings
    penstock consume greetings --from-beginning

Commands that talk to a cluster take --bootstrap-server (or PENSTOCK_BOOTSTRAP; default 127.0.0.1:9092) and --json. For
a cluster with TLS or passwords, give --profile or --command-config, too.
"""


def application() -> Any:
    app = typer.Typer(
        name="penstock",
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    app.command("up", rich_help_panel="Run")(up.up)
    app.command(
        server.NAME,
        help=server.SUMMARY,
        rich_help_panel="Run",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(_server)
    app.command("format", rich_help_panel="Run")(formatting.format_directories)
    app.command("registry", rich_help_panel="Run")(registry.registry)
    app.command("demo", rich_help_panel="Run")(demo.demo)
    app.command("console", rich_help_panel="Look")(console.console)
    app.add_typer(topics.app, name="topics", rich_help_panel="Use")
    app.command("produce", rich_help_panel="Use")(produce.produce)
    app.command("consume", rich_help_panel="Use")(consume.consume)
    app.add_typer(groups.app, name="groups", rich_help_panel="Use")
    app.add_typer(share_groups.app, name="share-groups", rich_help_panel="Use")
    app.add_typer(transactions.app, name="transactions", rich_help_panel="Use")
    app.add_typer(acls.app, name="acls", rich_help_panel="Use")
    app.add_typer(users.app, name="users", rich_help_panel="Use")
    app.add_typer(certificates.app, name="certificates", rich_help_panel="Use")
    app.add_typer(tokens.app, name="tokens", rich_help_panel="Use")
    app.add_typer(quotas.app, name="quotas", rich_help_panel="Use")
    app.add_typer(schemas.app, name="schemas", rich_help_panel="Use")
    app.add_typer(client_metrics.app, name="client-metrics", rich_help_panel="Use")
    app.add_typer(features.app, name="features", rich_help_panel="Use")
    app.add_typer(pipeline.app, name="pipeline", rich_help_panel="Use")
    app.add_typer(spark.app, name="spark", rich_help_panel="Use")
    app.command("top", rich_help_panel="Look")(top.top)
    app.command("doctor", rich_help_panel="Look")(doctor.doctor)
    app.add_typer(cluster.app, name="cluster", rich_help_panel="Look")
    app.add_typer(log.app, name="log", rich_help_panel="Look")
    app.add_typer(log_dirs.app, name="log-dirs", rich_help_panel="Look")
    app.add_typer(bench.app, name="bench", rich_help_panel="Look")
    command = typer.main.get_command(app)
    access.add_options(command)
    _reflow(command)
    return command


def _reflow(command: Any) -> None:
    """Reflow docstrings: the terminal fills paragraphs; indented lines are examples and stay lines."""
    paragraphs = []
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("    "):
            examples = (line.strip().replace("[", "\\[") for line in paragraph.splitlines())
            paragraphs.append("\n".join(f"    [bold]{example}[/bold]" for example in examples))
        else:
            paragraphs.append(" ".join(paragraph.split()))
    command.help = "\n\n".join(paragraphs)
    for child in getattr(command, "commands", {}).values():
        _reflow(child)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options before the command."""


def _server(context: typer.Context) -> int:
    return server.main(context.args)
