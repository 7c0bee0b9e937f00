"""A file of records, piece by piece: which records a piece has, which lines are wrong, where the next piece begins.

The browser sends pieces of a file. Each response says how many bytes were used: the next piece begins there. So the
server keeps nothing between two pieces, and a file of any size needs the memory of one. A piece ends within a line or
within a quoted field as it likes: what is not whole is left for the next.

    text      each line is a value
    jsonl     each line is a value that must be JSON; a field of it may be the key
    records   each line is a record as an export has it: {"key": ..., "value": ..., "headers": [[name, value]]}
    csv       the first line names the columns; each row becomes a JSON object, and a column may be the key

Empty lines are left out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.console.views.json_path import MISSING, Path, parse_path, value_at

FORMATS = {
    "jsonl": "JSON lines: each is a value",
    "records": "JSON lines: each is a record, as in an export",
    "csv": "CSV with a line of names: each row becomes a JSON object",
    "text": "text: each line is a value",
}
PIECE_MAX = 8 * 1024 * 1024
ERRORS_MAX = 100
PREVIEW_MAX = 10
_COLUMNS_MAX = 1_000
_BOM = b"\xef\xbb\xbf"

Headers: TypeAlias = "tuple[tuple[str, bytes | None], ...]"


class BadUpload(ValueError):
    """The piece cannot be read at all; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record to write."""

    line: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """What the browser says about the file, and about the piece it sends."""

    format: str
    key: str = ""
    """The field or column with the key; empty for records without one."""
    first_line: int = 1
    is_last: bool = True
    columns: tuple[str, ...] = ()
    """Of CSV, after the first piece."""


@dataclass(slots=True)
class Piece:
    used: int = 0
    """Bytes: the next piece begins after them."""
    lines: int = 0
    entries: list[Entry] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    """Lines that are left out, and why; the first of them."""
    wrong: int = 0
    """How many are left out."""
    columns: tuple[str, ...] = ()

    def refuse(self, line: int, why: str) -> None:
        self.wrong += 1
        if len(self.errors) < ERRORS_MAX:
            self.errors.append((line, why))


def parse_piece(data: bytes, upload: Upload) -> Piece:
    if upload.format not in FORMATS:
        raise BadUpload(f"there is no format {upload.format!r}")
    if len(data) > PIECE_MAX:
        raise BadUpload(f"a piece has at most {PIECE_MAX} bytes")
    whole = data if upload.is_last else data[: data.rfind(b"\n") + 1]
    piece = Piece(columns=upload.columns)
    if not whole:
        if len(data) >= PIECE_MAX:
            raise BadUpload(f"line {upload.first_line} is longer than {PIECE_MAX // 1024 // 1024} MiB")
        return piece
    lines = whole.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    key = _key_path(upload)
    if upload.format == "csv":
        _csv(lines, upload, piece)
    else:
        read = {"text": _text, "jsonl": _json, "records": _record}[upload.format]
        for number, line in enumerate(lines, upload.first_line):
            content = _content(line, number)
            if content:
                try:
                    piece.entries.append(read(number, content, key))
                except BadUpload as error:
                    piece.refuse(number, str(error))
        piece.lines = len(lines)
    piece.used = len(whole) if piece.lines == len(lines) else sum(len(line) + 1 for line in lines[: piece.lines])
    if not piece.used and len(data) >= PIECE_MAX:
        raise BadUpload(f"the row from line {upload.first_line} on is longer than {PIECE_MAX // 1024 // 1024} MiB")
    return piece


def _key_path(upload: Upload) -> Path | None:
    if not upload.key or upload.format != "jsonl":
        return None
    try:
        return parse_path(upload.key)
    except ValueError as error:
        raise BadUpload(f"key: {error}") from error


def _content(line: bytes, number: int) -> bytes:
    line = line.removesuffix(b"\r")
    return line.removeprefix(_BOM) if number == 1 else line


def _text(number: int, content: bytes, key: Path | None) -> Entry:
    return Entry(number, content)


def _json(number: int, content: bytes, key: Path | None) -> Entry:
    document = _document(content)
    if key is None:
        return Entry(number, content)
    found = value_at(document, key)
    if found is MISSING or found is None:
        raise BadUpload("it has no such key")
    return Entry(number, content, _bytes(found))


def _record(number: int, content: bytes, key: Path | None) -> Entry:
    document = _document(content)
    if not isinstance(document, dict) or "value" not in document:
        raise BadUpload('it is not an object with a "value"')
    given = document.get("headers") or []
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise BadUpload("headers are pairs of a name and a value")
    headers = tuple((name, _bytes(value)) for name, value in pairs)
    return Entry(number, _bytes(document["value"]), _bytes(document.get("key")), headers)


def _document(content: bytes) -> Any:
    try:
        return json.loads(content)
    except UnicodeDecodeError:
        raise BadUpload("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadUpload(f"it is not JSON: {error.msg}, at character {error.pos + 1}") from None
    except RecursionError:
        raise BadUpload("its JSON is nested too deeply") from None


def _bytes(value: Any) -> bytes | None:
    """A text is its bytes, `{"hex": ...}` the bytes that an export could not write as text, and the rest is JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode(errors="replace")
    if isinstance(value, dict) and value.keys() == {"hex"} and isinstance(value["hex"], str):
        try:
            return bytes.fromhex(value["hex"])
        except ValueError:
            raise BadUpload(f"{value['hex'][:20]!r} is not hexadecimal") from None
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def _csv(lines: Sequence[bytes], upload: Upload, piece: Piece) -> None:
    """Rows may span lines; a row that does not end in this piece is left for the next."""
    wrong: set[int] = set()

    def texts() -> Iterator[str]:
        for number, line in enumerate(lines, upload.first_line):
            try:
                yield _content(line, number).decode() + "\n"
            except UnicodeDecodeError:
                wrong.add(number)
                yield "\n"

    reader = csv.reader(texts(), strict=True)
    while True:
        line = upload.first_line + piece.lines
        try:
            row = next(reader)
        except StopIteration:
            piece.lines = len(lines)
            break
        except csv.Error as error:
            if "unexpected end" in str(error) and not upload.is_last:
                break
            piece.lines = reader.line_num
            piece.refuse(line, f"it is not CSV: {error}")
            continue
        piece.lines = reader.line_num
        of_row = wrong & set(range(line, upload.first_line + piece.lines))
        if of_row:
            piece.refuse(min(of_row), "it is not UTF-8")
        elif not row:
            continue
        elif not piece.columns:
            piece.columns = _columns(row, upload)
        else:
            _row(line, row, upload, piece)


def _columns(row: list[str], upload: Upload) -> tuple[str, ...]:
    names = tuple(name.strip() for name in row)
    if len(names) > _COLUMNS_MAX or len(set(names)) < len(names) or "" in names:
        raise BadUpload("the first line must name every column, and each differently")
    if upload.key and upload.key not in names:
        raise BadUpload(f"there is no column {upload.key!r} for the key: the first line names {', '.join(names)[:200]}")
    return names


def _row(line: int, row: list[str], upload: Upload, piece: Piece) -> None:
    if len(row) != len(piece.columns):
        piece.refuse(line, f"it has {len(row)} fields, and the first line {len(piece.columns)}")
        return
    document = dict(zip(piece.columns, row, strict=True))
    key = document[upload.key].encode() if upload.key else None
    piece.entries.append(Entry(line, json.dumps(document, ensure_ascii=False).encode(), key))
