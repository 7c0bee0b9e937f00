"""The files of a log directory as readable entries: one dict for each batch, record, index entry or line.

A problem in a file is also an entry, of type "problem"; reading continues where possible. Files are mapped, not
loaded: a segment may have a gigabyte.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from penstock.cli.output import fail
from penstock.io.files import RealFileSystem, read_file
from penstock.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    MalformedCheckpoint,
    read_epoch_checkpoint,
    read_offset_checkpoint,
)
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from penstock.log.transaction_index import CorruptTransactionIndex, TransactionIndex
from penstock.metadata.serde import decode_record
from penstock.metadata.unserved import UnservedRecord, kind_of
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.declaration import plain_values
from penstock.protocol.primitives import MalformedMessage
from penstock.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, iterate_headers, read_header
from penstock.records.compression import Codec
from penstock.records.control import ControlType, control_type, parse_quorum_record, parse_transaction_marker
from penstock.records.record import Record, iterate_records

Entry = dict[str, Any]

# Space for a batch of the largest possible request, decompressed.
_RECORDS_BYTES_MAX = 1 << 30
_NAME = re.compile(r"(\d{20})(?:-(\d{10}))?\.(log|index|timeindex|txnindex|snapshot|checkpoint)(?:\.\w+)*")
_FILES = RealFileSystem()


def dump(path: str, *, records: bool, limit: int | None = None) -> Iterator[Entry]:
    """The entries of one file, recognised by its name; of all files of a partition, given its directory.

    `limit` is the number of entries per file; with `records`, the number of records, with their batches.
    """
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            inside = os.path.join(path, name)
            if os.path.isfile(inside) and _reader(inside) is not None:
                yield {"type": "file", "file": name, "size": os.path.getsize(inside)}
                yield from dump(inside, records=records, limit=limit)
        return
    read = _reader(path)
    if read is None:
        fail(
            f"{path}: not a file of a log directory, by its name (.log, .index, .timeindex, .txnindex, .snapshot, "
            ".checkpoint, a checkpoint or a properties file)"
        )
    yield from _first(read(path, records), limit, "record" if records and read is _segment else None)


def _first(entries: Iterator[Entry], limit: int | None, counted: str | None) -> Iterator[Entry]:
    """The first `limit` entries of the counted type (any type if None), with the entries before them."""
    if limit is None:
        yield from entries
        return
    found = 0
    for entry in entries:
        yield entry
        found += counted is None or entry["type"] == counted
        if found == limit:
            return


def _reader(path: str) -> Callable[[str, bool], Iterator[Entry]] | None:
    name = os.path.basename(path)
    match = _NAME.fullmatch(name)
    if match is not None:
        return _READERS[match[3]]
    if name == "bootstrap.checkpoint":
        return _segment
    if name == LEADER_EPOCH_CHECKPOINT:
        return _epochs
    if name.endswith("-offset-checkpoint"):
        return _offsets
    if name in ("meta.properties", "partition.metadata", "quorum-state", "server.properties", ".kafka_cleanshutdown"):
        return _text
    return None


def _base_offset(path: str) -> int:
    return int(os.path.basename(path)[:20])


def _problem(path: str, message: str) -> Entry:
    return {"type": "problem", "file": os.path.basename(path), "message": message}


@contextlib.contextmanager
def _mapped(path: str) -> Iterator[memoryview]:
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield view


def _segment(path: str, records: bool) -> Iterator[Entry]:
    is_metadata = path.endswith(".checkpoint") or os.path.basename(os.path.dirname(os.path.abspath(path))).startswith(
        METADATA_TOPIC
    )
    with _mapped(path) as view:
        end = 0
        try:
            for position, header in iterate_headers(view):
                yield _batch(position, header)
                end = position + header.size
                try:
                    check_crc(view, position, header)
                    if records:
                        for record in iterate_records(view, position, header, max_size=_RECORDS_BYTES_MAX):
                            yield _record(record, header, is_metadata)
                except CorruptBatch as error:
                    yield _problem(path, error.message)
        except CorruptBatch as error:
            yield _problem(path, error.message)
        else:
            if end < len(view):
                yield _problem(path, f"{len(view) - end} bytes at position {end} are no whole batch")


def _batch(position: int, header: BatchHeader) -> Entry:
    entry: Entry = {
        "type": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "position": position,
        "size": header.size,
        "leader_epoch": header.leader_epoch,
        "codec": _codec_name(header.codec),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }
    if header.delete_horizon_ms is not None:
        entry["delete_horizon_ms"] = header.delete_horizon_ms
    return entry


def _codec_name(number: int) -> str:
    try:
        return Codec(number).name.lower()
    except ValueError:
        return f"codec {number}"


def _record(record: Record, header: BatchHeader, is_metadata: bool) -> Entry:
    entry: Entry = {"type": "record", "offset": record.offset, "timestamp": record.timestamp}
    if header.is_control:
        return entry | _control(record)
    if is_metadata:
        return entry | _metadata(record)
    headers = [[key if isinstance(key, str) else _text_of(key), _text_of(value)] for key, value in record.headers]
    return entry | {"key": _text_of(record.key), "value": _text_of(record.value), "headers": headers}


def _control(record: Record) -> Entry:
    number = control_type(record.key)
    if number not in list(ControlType):
        return {"control": number, "value": _text_of(record.value)}
    marker = parse_transaction_marker(record)
    if marker is not None:
        return {"control": ControlType(number).name, "value": {"coordinator_epoch": marker.coordinator_epoch}}
    message = parse_quorum_record(record)
    return {"control": ControlType(number).name, "value": None if message is None else plain_values(message)}


def _metadata(record: Record) -> Entry:
    try:
        message = decode_record(record.value)
    except MalformedMessage as error:
        return {"unreadable": str(error), "value": _text_of(record.value)}
    if isinstance(message, UnservedRecord):
        return {"unreadable": f"metadata record of {kind_of(message)}", "value": _text_of(record.value)}
    return {"metadata": type(message).__name__, "value": plain_values(message)}


def _text_of(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _offset_index(path: str, records: bool) -> Iterator[Entry]:
    index = OffsetIndex(_FILES, path, _base_offset(path), os.path.getsize(path))
    segment = path.replace(".index", ".log")
    with _mapped(segment) if os.path.exists(segment) else contextlib.nullcontext() as view:
        previous = _base_offset(path) - 1
        for offset, position in index.entries():
            if not position:
                break  # no entry points at the first batch: the rest is space that Kafka allocates in advance
            if offset <= previous:
                yield _problem(path, f"offset {offset} follows {previous}")
            previous = offset
            yield {"type": "index", "offset": offset, "position": position}
            if view is not None:
                problem = _misplaced(view, offset, position)
                if problem is not None:
                    yield _problem(path, problem)


def _misplaced(view: memoryview, offset: int, position: int) -> str | None:
    """The problem with an index entry, given the segment; None if it is correct."""
    if position + HEADER_SIZE > len(view):
        return f"offset {offset} is said to be at position {position}, behind the segment's end at {len(view)}"
    found = read_header(view, position).last_offset
    return None if found == offset else f"offset {offset} is said to end the batch at {position}; it ends with {found}"


def _time_index(path: str, records: bool) -> Iterator[Entry]:
    previous = -1
    for timestamp, offset in TimeIndex(_FILES, path, _base_offset(path), os.path.getsize(path)).entries():
        if not timestamp:
            break  # allocated in advance
        if timestamp <= previous:
            yield _problem(path, f"timestamp {timestamp} follows {previous}")
        previous = timestamp
        yield {"type": "timeindex", "timestamp": timestamp, "offset": offset}


def _transaction_index(path: str, records: bool) -> Iterator[Entry]:
    try:
        for aborted in TransactionIndex(_FILES, path).entries():
            yield {"type": "txnindex", **aborted._asdict()}
    except CorruptTransactionIndex as error:
        yield _problem(path, str(error))


def _producers(path: str, records: bool) -> Iterator[Entry]:
    try:
        entries = decode_snapshot(read_file(_FILES, path))
    except CorruptSnapshot as error:
        yield _problem(path, str(error))
        return
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        yield {
            "type": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": last.last_sequence if last else -1,
            "first_offset": last.first_offset if last else -1,
            "last_offset": last.last_offset if last else -1,
            "timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }


def _epochs(path: str, records: bool) -> Iterator[Entry]:
    try:
        for epoch, start_offset in read_epoch_checkpoint(_FILES, path):
            yield {"type": "epoch", "leader_epoch": epoch, "start_offset": start_offset}
    except MalformedCheckpoint as error:
        yield _problem(path, str(error))


def _offsets(path: str, records: bool) -> Iterator[Entry]:
    try:
        for (topic, partition), offset in read_offset_checkpoint(_FILES, path).items():
            yield {"type": "checkpoint", "topic": topic, "partition": partition, "offset": offset}
    except MalformedCheckpoint as error:
        yield _problem(path, str(error))


def _text(path: str, records: bool) -> Iterator[Entry]:
    for line in read_file(_FILES, path).decode(errors="replace").splitlines():
        yield {"type": "line", "text": line}


_READERS: dict[str, Callable[[str, bool], Iterator[Entry]]] = {
    "log": _segment,
    "checkpoint": _segment,
    "index": _offset_index,
    "timeindex": _time_index,
    "txnindex": _transaction_index,
    "snapshot": _producers,
}
