"""`penstock pipeline init`: makes a first pipeline, with tests, from the records of a topic."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, fail, note, quiet_librdkafka


def init(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="Topic that the pipeline reads.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default="TOPIC.yaml"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the pipeline.", show_default="the topic's")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic that it writes.", show_default="TOPIC.selected")
    ] = None,
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, metavar="N", help="How many of the newest records to look at.")
    ] = 1000,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make a pipeline file, with tests, from the newest records of a topic. Needs no Spark.

    The schema is inferred from the records: JSON objects become columns, other text one column. The file has a source,
    a step, a sink, and tests made of some of the records; edit it from there. Check that those records may be shown
    before you share the file.

    Examples:

        penstock pipeline init orders
        penstock pipeline init orders --to orders.checked -o pipelines/orders.yaml
    """
    from penstock.pipelines.check.validate import validate
    from penstock.pipelines.operate.sampling import newest_records
    from penstock.pipelines.operate.scaffold import STEP, scaffold

    quiet_librdkafka()
    file, target = output or f"{topic}.yaml", to or f"{topic}.{STEP}"
    if target == topic:
        fail(f"--to {to} is the topic that the pipeline reads: choose another")
    if os.path.exists(file) and not force:
        fail(f"{file} is there already: --force overwrites it, --output writes another file")
    sample = newest_records(bootstrap_server, topic, records)
    made = scaffold(topic, sample, name=name or topic, bootstrap=bootstrap_server, to=target)
    os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(made.text)
    for problem in validate(file):
        note(str(problem))
    print(f"{file}: {len(sample)} records are {made.format}, {made.columns} columns; {made.tests} tests")
    print("next:")
    print(f"  penstock pipeline validate {file}")
    print(f"  penstock pipeline test {file}")
    is_implied = bootstrap_server in {DEFAULT_BOOTSTRAP, os.environ.get("PENSTOCK_BOOTSTRAP")}
    where = "" if is_implied else f" --bootstrap-server {bootstrap_server}"
    print(f"  penstock topics create {target} {name or topic}.dead-letters{where}")
    print(f"  penstock pipeline run {file}")
