"""The cluster that a pipeline uses: that of the option, else of its file, else of the environment variable.

A file says where its pipeline belongs: a variable that is set for other commands must not send it elsewhere.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.access import DEFAULT_BOOTSTRAP, from_variables, reach
from penstock.cli.output import fail
from penstock.client.access import completed

if TYPE_CHECKING:
    from penstock.pipelines.spec.loading import Loaded

Environment = Annotated[
    str | None, typer.Option("--env", "-e", metavar="NAME", help="Environment of the file.", show_default=False)
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="Parameter of the file; repeatable.")
]
PipelineBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        help="Brokers to use instead of those in the file; default: those in the file, or else PENSTOCK_BOOTSTRAP.",
        show_default=False,
        callback=reach,
    ),
]
DeadLetterTarget = Annotated[
    str, typer.Argument(metavar="FILE|TOPIC", show_default=False, help="Pipeline file, or dead-letter topic.")
]


class ChosenCluster(NamedTuple):
    address: str
    origin: str
    """Where the address comes from."""

    def __str__(self) -> str:
        without_settings = self.address.partition("?")[0].removesuffix("@")
        return f"{without_settings} ({self.origin})"


def cluster_of(option: str | None, loaded: Loaded | None = None) -> ChosenCluster:
    if option and option.startswith("@"):
        # Settings without addresses are for the cluster in the file.
        addresses = loaded.pipeline.bootstrap if loaded is not None else DEFAULT_BOOTSTRAP
        return ChosenCluster(completed(option, addresses), "--profile or --command-config")
    at = loaded.pipeline.at if loaded is not None else str
    if option:
        return ChosenCluster(at(option), "--bootstrap-server")
    variable, name = from_variables() or ("", "")
    if loaded is not None and ("bootstrap",) in loaded.places.nodes:
        file = loaded.file if loaded.environment is None else f"{loaded.file} --env {loaded.environment}"
        instead = f", which overrides {name}={variable}" if variable and variable != loaded.pipeline.bootstrap else ""
        return ChosenCluster(loaded.pipeline.cluster, file + instead)
    return ChosenCluster(at(variable), name) if variable else ChosenCluster(at(DEFAULT_BOOTSTRAP), "the default")


class DeadLetters(NamedTuple):
    topic: str
    pipeline: str
    """Whose letters they are; empty for all of the topic."""
    bootstrap: str


def dead_letters_of(target: str, env: str | None, settings: list[str] | None, option: str | None) -> DeadLetters:
    """Of a pipeline file, or of a topic."""
    if os.path.exists(target) or target.endswith((".yaml", ".yml")):
        from penstock.cli.pipeline import checked

        loaded = checked(target, env, settings)
        pipeline = loaded.pipeline
        return DeadLetters(pipeline.dead_letter_topic, pipeline.name, cluster_of(option, loaded).address)
    if env or settings:
        fail(f"--env and --set are for files; {target} is taken for a topic")
    return DeadLetters(target, "", cluster_of(option).address)
