"""The command tree: all command groups in one typer application.

Typer reads the signature of every function of a tree that it builds, and half a second of a quick command would be
spent on those of others. So the table below says what each command is called, where it is, and its first sentence; a
run builds the one that its arguments name, and the others are entries for `--help` and for suggestions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock import __version__
from penstock.cli import access, server

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


class Entry(NamedTuple):
    name: str
    panel: str
    function: str
    """The module in this package, and the function in it; a group is the `app` of its module."""
    summary: str

    @property
    def is_group(self) -> bool:
        return self.function.endswith(".app")


COMMANDS: Final = (
    Entry("up", "Run", "up.up", "Run a local cluster in the foreground. Ctrl-C stops it; the data stays."),
    Entry(server.NAME, "Run", "app._server", server.SUMMARY),
    Entry("host", "Run", "host.host", "Run the brokers of this machine, one for each core, in the foreground."),
    Entry(
        "format",
        "Run",
        "formatting.format_directories",
        "Format the directories of a node that has not been started yet.",
    ),
    Entry(
        "registry",
        "Run",
        "registry.registry",
        "Run a schema registry with the REST API of Confluent's, in the foreground. Ctrl-C stops it.",
    ),
    Entry(
        "demo",
        "Run",
        "demo.demo",
        "Run three brokers, a fleet of trucks and a web shop that write events, and Spark pipelines that read them.",
    ),
    Entry(
        "migrate",
        "Run",
        "migrate.app",
        "Move a running cluster from Apache Kafka to Penstock, or back. "
        "Commands that change something have --dry-run; each step can be undone.",
    ),
    Entry("console", "Look", "console.console", "Serve a web console for a cluster. Ctrl-C ends it."),
    Entry("topics", "Use", "topics.app", "Create, list, describe, alter, move and delete topics."),
    Entry("produce", "Use", "produce.produce", "Write lines from stdin to a topic, one record per line."),
    Entry(
        "consume",
        "Use",
        "consume.consume",
        "Print the records of all partitions of a topic, from now on or from where you say.",
    ),
    Entry("groups", "Use", "groups.app", "Show the progress of consumer groups, reset and delete them."),
    Entry(
        "share-groups", "Use", "share_groups.app", "Show the progress of share groups (queues), reset and delete them."
    ),
    Entry("transactions", "Use", "transactions.app", "Show transactions, find hanging transactions, and abort them."),
    Entry("acls", "Use", "acls.app", "Show and change ACLs: who may do what to topics, groups and the cluster."),
    Entry("users", "Use", "users.app", "List SCRAM users, set and remove their passwords."),
    Entry(
        "certificates",
        "Use",
        "certificates.app",
        "Make an authority, issue and renew certificates, see when they expire.",
    ),
    Entry("tokens", "Use", "tokens.app", "Make, renew, end and list delegation tokens."),
    Entry(
        "quotas",
        "Use",
        "quotas.app",
        "List, set and remove quotas: how much a user, a client id or an address may use.",
    ),
    Entry(
        "schemas",
        "Use",
        "schemas.app",
        "List, show, register, check, compare, delete, export and import schemas of a schema registry.",
    ),
    Entry(
        "client-metrics",
        "Use",
        "client_metrics.app",
        "List, set and remove subscriptions to the metrics of clients (KIP-714).",
    ),
    Entry("features", "Use", "features.app", "Show feature levels, and raise them after an upgrade of all nodes."),
    Entry("pipeline", "Use", "pipeline.app", "Validate, test, run and operate data pipelines."),
    Entry(
        "spark", "Use", "spark.app", "Run PySpark programs that read and write topics. You do not need to install Java."
    ),
    Entry(
        "top",
        "Look",
        "top.top",
        "Watch a cluster live: brokers, the busiest topics, the groups with the largest lag. Ctrl-C ends it.",
    ),
    Entry(
        "doctor",
        "Look",
        "doctor.doctor",
        "Check a cluster from this machine, and report what is wrong, why, and what to do.",
    ),
    Entry("cluster", "Look", "cluster.app", "Describe a cluster, balance it, and remove nodes."),
    Entry("log", "Look", "log.app", "Inspect the files of a log directory."),
    Entry(
        "log-dirs", "Look", "log_dirs.app", "Describe the log directories of brokers, and move replicas between them."
    ),
    Entry("bench", "Look", "bench.app", "Measure the performance of any Kafka-compatible cluster."),
)


def application(only: str | None = None) -> Any:
    """`only`: the command that is built; the others have a name and a summary. None for all."""
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
    for entry in COMMANDS:
        if only is None or entry.name == only:
            _add(app, entry)
        elif entry.is_group:
            app.add_typer(typer.Typer(help=entry.summary), name=entry.name, rich_help_panel=entry.panel)
        else:
            app.command(entry.name, help=entry.summary, rich_help_panel=entry.panel)(_elsewhere)
    command = typer.main.get_command(app)
    access.add_options(command)
    _reflow(command)
    return command


def _add(app: typer.Typer, entry: Entry) -> None:
    module, _, name = entry.function.rpartition(".")
    found = getattr(import_module(f"penstock.cli.{module}"), name)
    if entry.is_group:
        app.add_typer(found, name=entry.name, rich_help_panel=entry.panel)
    elif entry.name == server.NAME:
        app.command(
            entry.name,
            help=entry.summary,
            rich_help_panel=entry.panel,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_server)
    else:
        app.command(entry.name, rich_help_panel=entry.panel)(found)


def _elsewhere() -> None:
    raise AssertionError("this command was not built")


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
