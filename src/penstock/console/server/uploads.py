"""Files of records, which the browser sends in pieces. Nothing is kept between two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.console.observe.access import ClusterAccess
from penstock.console.pages.topics import upload_preview
from penstock.console.views.uploads import BadUpload, Entry, Piece, Upload, parse_piece

_TIMEOUT_S = 30.0


def read_piece(parameters: Mapping[str, str], data: bytes) -> Piece:
    """BadUpload if it makes no sense."""
    first = parameters.get("first", "1")
    if not first.isdecimal() or len(first) > 12 or int(first) < 1:
        raise BadUpload(f"the first line is not {first!r}")
    try:
        columns = json.loads(parameters.get("columns") or "[]")
    except (ValueError, RecursionError):
        columns = None
    if not isinstance(columns, list) or not all(isinstance(each, str) for each in columns):
        raise BadUpload("columns must be a list of names")
    upload = Upload(
        format=parameters.get("format", ""),
        key=parameters.get("key", ""),
        first_line=int(first),
        is_last=parameters.get("last") == "1",
        columns=tuple(columns),
    )
    return parse_piece(data, upload)


def answer(piece: Piece, *, with_preview: bool) -> dict[str, Any]:
    return {
        "used": piece.used,
        "lines": piece.lines,
        "records": len(piece.entries),
        "wrong": piece.wrong,
        "errors": piece.errors,
        "columns": list(piece.columns),
        "preview": upload_preview(piece.entries) if with_preview else "",
    }


def write(access: ClusterAccess, topic: str, entries: list[Entry]) -> None:
    """All are acknowledged on return."""
    import pyarrow as pa

    from penstock.arrow import HEADERS_TYPE, write_table

    if not entries:
        return
    headers = [[{"key": name, "value": value} for name, value in entry.headers] for entry in entries]
    table = pa.table(
        {
            "key": pa.array([entry.key for entry in entries], pa.binary()),
            "value": pa.array([entry.value for entry in entries], pa.binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )
    write_table(
        access.bootstrap,
        topic,
        table,
        key="key",
        value="value",
        headers="headers",
        timeout=_TIMEOUT_S,
        options=access.options or None,
    )
