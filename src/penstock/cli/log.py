"""`penstock log`: prints the files of a log directory in readable form."""

from __future__ import annotations

import json as json_module
import os
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.cli.output import Json, command_group, fail, size_text

app = command_group("Inspect the files of a log directory.")


@app.callback()
def group() -> None:
    pass


@app.command()
def dump(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, or the directory of a partition.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Print the records of each batch, too.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="Print at most this many entries of each file; with --records, this many records.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print a segment, index, snapshot or checkpoint in readable form.

    Works with the files of Penstock and of Apache Kafka, also while a broker has them open. Checks CRCs, and index
    entries against their segment; prints what is wrong and then exits with status 1. Decodes records of the metadata
    log by their type. With [bold]--json[/bold], prints one object per line.

    Examples:

        penstock log dump penstock-data/node-1/data/orders-0
        penstock log dump --records 00000000000000000000.log
    """
    from penstock.cli.dump import dump as entries_of

    problems = 0
    for position, path in enumerate(files):
        if not os.path.exists(path):
            fail(f"{path}: no such file or directory")
        if len(files) > 1 and not json:
            print(f"{chr(10) if position else ''}{path}")
        for entry in entries_of(path, records=records, limit=limit):
            problems += entry["type"] == "problem"
            if json:
                print(json_module.dumps({"file": path, **entry} if len(files) > 1 else entry, ensure_ascii=False))
            else:
                print(text_of(entry))
    if problems:
        fail(f"{problems} problem{'s' if problems > 1 else ''} found")


def text_of(entry: dict[str, Any]) -> str:
    """One entry as one line."""
    match entry["type"]:
        case "batch":
            return _batch_text(entry)
        case "record":
            return _record_text(entry)
        case "file":
            return f"== {entry['file']}  {size_text(entry['size'])}"
        case "problem":
            return f"PROBLEM in {entry['file']}: {entry['message']}"
        case "timeindex":
            return f"{time_text(entry['timestamp'])}  offset {entry['offset']}"
        case "line":
            return str(entry["text"])
        case kind:
            shown = (f"{name} {value}" for name, value in entry.items() if name != "type")
            return f"{kind}: {'  '.join(shown)}"


def time_text(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "no time"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _batch_text(entry: dict[str, Any]) -> str:
    parts = [
        f"offsets {entry['base_offset']}-{entry['last_offset']}",
        f"{entry['count']} records",
        f"at {entry['position']}",
        f"{entry['size']} bytes",
        time_text(entry["max_timestamp"]),
        f"epoch {entry['leader_epoch']}",
        entry["codec"] if entry["codec"] != "none" else "uncompressed",
    ]
    if entry["producer_id"] >= 0:
        sequences = (
            f" sequences {entry['base_sequence']}-{entry['last_sequence']}" if entry["base_sequence"] >= 0 else ""
        )
        parts.append(f"producer {entry['producer_id']}/{entry['producer_epoch']}{sequences}")
    parts += [name for name in ("transactional", "control") if entry[name]]
    if entry["timestamp_type"] == "LogAppendTime":
        parts.append("LogAppendTime")
    if "delete_horizon_ms" in entry:
        parts.append(f"delete horizon {time_text(entry['delete_horizon_ms'])}")
    return "  ".join(parts)


def _record_text(entry: dict[str, Any]) -> str:
    start = f"    offset {entry['offset']}  {time_text(entry['timestamp'])}"
    kind = entry.get("metadata") or entry.get("control")
    if kind is not None:
        return f"{start}  {kind} {_compact(entry['value'])}"
    if "unreadable" in entry:
        return f"{start}  {entry['unreadable']}: {_compact(entry['value'])}"
    headers = f"  headers {_compact(entry['headers'])}" if entry["headers"] else ""
    return f"{start}  key {_compact(entry['key'])}  value {_compact(entry['value'])}{headers}"


def _compact(value: Any) -> str:
    return json_module.dumps(value, ensure_ascii=False)
