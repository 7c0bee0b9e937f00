"""`penstock pipeline preview`: shows rows of a step, computed from real records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.cli.output import note, print_json, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec.loading import Loaded

_CELL_MAX = 60


def previewed(
    loaded: Loaded,
    name: str,
    bootstrap: str,
    session: Callable[[], SparkSession],
    *,
    limit: int,
    records: int | None,
    as_json: bool,
) -> None:
    """Checks names and topics before Spark starts."""
    from penstock.pipelines.engine.preview import newest, preview, table_named

    table = table_named(loaded, name)
    starts = newest(loaded, table, bootstrap, records)
    note(f"Spark starts, and reads {'all' if records is None else 'the newest'} records")
    found = preview(loaded, session(), table, bootstrap, starts, limit=limit)
    if as_json:
        print_json({"columns": found.columns, "rows": found.rows, "dead_letters": found.dead_letters})
        return
    if not found.rows:
        note(f'"{name}" has no rows' + ("" if found.dead_letters else ": the records that were read give none"))
    print_table(found.columns, [[_cell(row[column]) for column in found.columns] for row in found.rows])
    for dead in found.dead_letters:
        plural = "" if dead.records == 1 else "s"
        note(f"{dead.records} dead letter{plural} on the way: {dead.reason}")


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= _CELL_MAX else f"{text[: _CELL_MAX - 3]}..."
