"""`penstock pipeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import Json, command_group, note, parse_pairs, print_json

if TYPE_CHECKING:
    from penstock.pipelines.loading import Loaded
    from penstock.pipelines.problems import Problem

app = command_group("Validate, test and run data pipelines, which are files.")

File = Annotated[str, typer.Argument(metavar="FILE", show_default=False, help="A pipeline, in YAML.")]
Environment = Annotated[
    str | None, typer.Option("--env", "-e", metavar="NAME", help="An environment of the file.", show_default=False)
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="A parameter; repeatable.")
]


@app.command()
def validate(file: File, env: Environment = None, settings: Settings = None, json: Json = False) -> None:
    """Say all that is wrong with a pipeline, without Spark, Java or brokers.

    Every problem has file, line and column. Without --env, the file and each of its environments are looked at.

    Examples:

        penstock pipeline validate orders.yaml
        penstock pipeline validate orders.yaml --env prod --set minimum=10
    """
    from penstock.pipelines.validating import validate as problems_of

    problems = problems_of(file, env, parse_pairs("--set", settings or ()))
    errors = sum(problem.severity == "error" for problem in problems)
    if json:
        print_json([_machine(problem) for problem in problems])
    else:
        for problem in problems:
            note(str(problem))
        print(f"{file}: {errors} error{'s' if errors != 1 else ''}" if errors else f"{file}: valid")
    if errors:
        raise typer.Exit(1)


@app.command()
def graph(
    file: File,
    env: Environment = None,
    settings: Settings = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart, for pages.")] = False,
) -> None:
    """Show the queries of a pipeline: what each reads, makes and writes.

    Example:

        penstock pipeline graph orders.yaml --mermaid > orders.mmd
    """
    from penstock.pipelines import graph as pictures
    from penstock.pipelines.analysis import analyse
    from penstock.pipelines.planning import plan

    loaded = checked(file, env, settings)
    analysis = analyse(loaded.pipeline, loaded.directory)
    draw = pictures.mermaid if mermaid else pictures.tree
    print(draw(loaded.pipeline, analysis, plan(loaded.pipeline, analysis)))


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors.

    Example:

        penstock pipeline schema > pipeline.schema.json
    """
    from penstock.pipelines.json_schema import FILE

    with open(FILE, encoding="utf-8") as opened:
        print(opened.read(), end="")


def checked(file: str, env: str | None, settings: list[str] | None) -> Loaded:
    """A pipeline that can run; otherwise its problems are told and the command ends."""
    from penstock.pipelines.problems import PipelineInvalid
    from penstock.pipelines.validating import load_checked

    try:
        loaded, warnings = load_checked(file, env, parse_pairs("--set", settings or ()))
    except PipelineInvalid as invalid:
        for problem in invalid.problems:
            note(str(problem))
        raise typer.Exit(1) from None
    for problem in warnings:
        note(str(problem))
    return loaded


def _machine(problem: Problem) -> dict[str, object]:
    line, column = problem.location or (None, None)
    return {
        "file": problem.file,
        "line": line,
        "column": column,
        "severity": problem.severity,
        "path": list(problem.path),
        "message": problem.message,
    }
