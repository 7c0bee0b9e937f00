"""Kafka's checkpoint files: small text files that store offsets.

Both kinds start with the version (`0`) and the number of lines that follow. An offset checkpoint of a log directory has
a line `<topic> <partition> <offset>` for each partition. `leader-epoch-checkpoint` in a partition's directory has lines
`<epoch> <start offset>`. Files are replaced atomically and synced, so a reader always sees a complete version. A file
that is malformed anyway (a disk fault, a hand edit) raises `MalformedCheckpoint`; every reader has a safe fallback:
recover more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.io.files import FileSystem, read_file, replace_file, write_file_atomically
from penstock.model.ids import TopicPartition

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"

_VERSION = "0"


class MalformedCheckpoint(ValueError):
    pass


def write_offset_checkpoint(files: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    write_file_atomically(files, path, _encode(lines))


def read_offset_checkpoint(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Read the offsets; empty if the file does not exist."""
    offsets: dict[TopicPartition, int] = {}
    for line in _read(files, path):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise MalformedCheckpoint(f"{path}: not `topic partition offset`: {line!r}") from error
    return offsets


def write_epoch_checkpoint(files: FileSystem, path: str, entries: Iterable[tuple[int, int]]) -> None:
    """Write the file. It is durable once the caller has synced the directory: the caller has more to sync there."""
    replace_file(files, path, _encode(f"{epoch} {start_offset}" for epoch, start_offset in entries))


def read_epoch_checkpoint(files: FileSystem, path: str) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for line in _read(files, path):
        try:
            epoch, start_offset = map(int, line.split())
        except ValueError as error:
            raise MalformedCheckpoint(f"{path}: not `epoch offset`: {line!r}") from error
        if epoch < 0 or start_offset < 0:
            raise MalformedCheckpoint(f"{path}: negative numbers: {line!r}")
        entries.append((epoch, start_offset))
    return entries


def _encode(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([_VERSION, str(len(body)), *body, ""]).encode()


def _read(files: FileSystem, path: str) -> list[str]:
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return []
    try:
        version, count, *lines = data.decode().splitlines()
        expected = int(count)
    except ValueError as error:
        raise MalformedCheckpoint(f"{path}: no version and count in the first two lines") from error
    if version.strip() != _VERSION:
        raise MalformedCheckpoint(f"{path}: version {version!r} is not known")
    lines = [line for line in lines if line.strip()]
    if len(lines) != expected:
        raise MalformedCheckpoint(f"{path}: {expected} lines announced, {len(lines)} found")
    return lines
