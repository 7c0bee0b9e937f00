"""Replaces segments with the compacted segment made from them, in crash-safe steps.

The names are Kafka's. A new segment is written as `<base>.log.cleaned` (and its indexes likewise). When complete and
synced, it is renamed to `.swap`; the segments it replaces are renamed to `.deleted`; then the suffix `.swap` is
removed.

Kafka completes a swap after a crash by removing the segments within the offsets of the `.swap` file. That is not enough
after a power loss: renames may reach the disk in any order, so the new segment could exist without `.swap` while an old
one that it replaces is back, with the same records. And if compaction removed the last records of its sources, nothing
in the new segment says how far it reaches. So there is one more file, `<base>.swap`: it lists the base offsets of the
replaced segments, and the files of the new one. It is written atomically and is the decision: as long as it exists the
swap is in progress, and repeating all of it is harmless.

    prepare_swap    .cleaned -> .swap, synced; then the decision, synced    any thread
    swap_files      old -> .deleted, .swap -> final: renames only           the event loop, with the log's segment list
    finish_swap     sync; then the decision is removed                      any thread
    recover_swaps   at a start: completes what was decided, undoes the rest

Any number of swaps may follow each other in a directory, from the front of the log to its end, one at a time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.io.files import FileSystem, read_file, write_file_atomically
from penstock.log.segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, file_name
from penstock.records.batch import HEADER_SIZE, MAGIC, MIN_LENGTH, read_header

logger = logging.getLogger("penstock.log")

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_VERSION = "0"
# A decision that was not completely written.
_UNDECIDED = SWAP_SUFFIX + ".tmp"
# The log comes last, after its indexes.
_INDEXES_THEN_LOG = (*(suffix for suffix in SEGMENT_SUFFIXES if suffix != LOG_SUFFIX), LOG_SUFFIX)


class MalformedSwap(ValueError):
    """A `<base>.swap` file that does not list what is replaced. It is written atomically: the disk has failed."""


class _Decision(NamedTuple):
    replaced: list[int]
    suffixes: list[str]


def prepare_swap(files: FileSystem, directory: str, base_offset: int, replaced: Sequence[int]) -> None:
    """Decide that the cleaned segment at `base_offset` replaces those at the offsets `replaced`."""
    suffixes: list[str] = []
    for suffix in _INDEXES_THEN_LOG:
        path = os.path.join(directory, file_name(base_offset, suffix))
        if _rename_if_there(files, path + CLEANED_SUFFIX, path + SWAP_SUFFIX):
            suffixes.append(suffix)
    if LOG_SUFFIX not in suffixes:
        raise FileNotFoundError(f"{directory} has no cleaned segment {base_offset}")
    files.sync_directory(directory)
    _decide(files, directory, base_offset, _Decision(list(replaced), suffixes))


def swap_files(files: FileSystem, directory: str, base_offset: int, replaced: Sequence[int]) -> list[str]:
    """Rename the files of a decided swap, without a sync; returns the paths of files to remove later.

    After an OSError only `recover_swaps` can continue: until then the directory must not be read.
    """
    set_aside: list[str] = []
    for offset in replaced:
        for suffix in SEGMENT_SUFFIXES:
            path = os.path.join(directory, file_name(offset, suffix))
            if _rename_if_there(files, path, path + DELETED_SUFFIX):
                set_aside.append(path + DELETED_SUFFIX)
    _take_suffix_off(files, directory, base_offset)
    return set_aside


def finish_swap(files: FileSystem, directory: str, base_offset: int, set_aside: Iterable[str] = ()) -> None:
    """Make a swap durable, and remove the files it set aside."""
    files.sync_directory(directory)
    files.remove(_decision_path(directory, base_offset))
    for path in set_aside:
        files.remove(path)
    files.sync_directory(directory)


def abandon_swap(files: FileSystem, directory: str, base_offset: int) -> None:
    """Undo `prepare_swap`, complete or failed, as long as `swap_files` has not begun. Durable on return.

    Without a decision `recover_swaps` would adopt the swap files, unless an unfinished cleaning is there. So the
    decision (or an empty file, if there is none) is renamed to look like an unfinished cleaning, and removed after
    them.
    """
    abandoned = os.path.join(directory, file_name(base_offset, CLEANED_SUFFIX))
    if not _rename_if_there(files, _decision_path(directory, base_offset), abandoned):
        files.open(abandoned, create=True).close()
    files.sync_directory(directory)
    for suffix in _INDEXES_THEN_LOG:
        files.remove(os.path.join(directory, file_name(base_offset, suffix) + SWAP_SUFFIX))
    files.sync_directory(directory)
    files.remove(abandoned)
    files.sync_directory(directory)


def remove_cleaned(files: FileSystem, directory: str) -> None:
    """Remove the files of an earlier cleaning. No cleaning of this log may be running."""
    names = files.list(directory)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    decided = [_base_offset(name) for name in swaps if _is_decision(name)]
    for base_offset in sorted({_base_offset(name) for name in swaps}.difference(decided)):
        abandon_swap(files, directory, base_offset)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            files.remove(os.path.join(directory, name))


def recover_swaps(files: FileSystem, directory: str, names: Iterable[str] | None = None) -> bool:
    """Complete decided swaps and undo unfinished cleaning in a partition's directory; true if anything was done."""
    names = files.list(directory) if names is None else list(names)
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if not cleaned and not swaps and not any(name.endswith(_UNDECIDED) for name in names):
        return False
    decided = [_base_offset(name) for name in swaps if _is_decision(name)]
    _adopt_undecided(files, directory, names, cleaned, swaps, decided)
    for base_offset in decided:
        _complete(files, directory, base_offset)
    # The files of an unfinished cleaning go last: as long as they exist, no swap file beside them is adopted.
    for suffixes in ((SWAP_SUFFIX, _UNDECIDED), (CLEANED_SUFFIX,)):
        for name in files.list(directory):
            if name.endswith(suffixes):
                logger.info("%s: %s is of a cleaning that was not finished and is removed", directory, name)
                files.remove(os.path.join(directory, name))
        files.sync_directory(directory)
    return True


def _adopt_undecided(
    files: FileSystem, directory: str, names: list[str], cleaned: list[str], swaps: list[str], decided: list[int]
) -> None:
    """Complete swap files without a decision come from an Apache Kafka that stopped in the middle (or from us, one step
    before the decision). Kafka's rules apply: old segments may already be gone.

    A swap file at or above an unfinished one belongs to an incomplete set.
    """
    unfinished = min((_base_offset(name) for name in cleaned), default=None)
    undecided: dict[int, list[str]] = {}
    for name in swaps:
        base_offset = _base_offset(name)
        if base_offset not in decided and (unfinished is None or base_offset < unfinished):
            undecided.setdefault(base_offset, []).append(os.path.splitext(name.removesuffix(SWAP_SUFFIX))[1])
    for base_offset, suffixes in undecided.items():
        replaced: list[int] = []
        if LOG_SUFFIX in suffixes:
            path = os.path.join(directory, file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX)
            end = max(_next_offset(files, path, base_offset), base_offset + 1)
            logs = [_base_offset(name) for name in names if name.endswith(LOG_SUFFIX)]
            replaced = [offset for offset in logs if base_offset <= offset < end]
        _decide(files, directory, base_offset, _Decision(replaced, suffixes))
        decided.append(base_offset)


def _complete(files: FileSystem, directory: str, base_offset: int) -> None:
    decision = _read_decision(files, directory, base_offset)
    logger.info("%s: completing the swap of segment %d for %s", directory, base_offset, decision.replaced)
    for offset in decision.replaced:
        for suffix in SEGMENT_SUFFIXES:
            # A file that the new segment has, too, is either replaced by the renames below, or is already the new one.
            if offset != base_offset or suffix not in decision.suffixes:
                files.remove(os.path.join(directory, file_name(offset, suffix)))
    _take_suffix_off(files, directory, base_offset)
    finish_swap(files, directory, base_offset)


def _take_suffix_off(files: FileSystem, directory: str, base_offset: int) -> None:
    for suffix in _INDEXES_THEN_LOG:
        path = os.path.join(directory, file_name(base_offset, suffix))
        _rename_if_there(files, path + SWAP_SUFFIX, path)


def _rename_if_there(files: FileSystem, source: str, target: str) -> bool:
    try:
        files.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def _decide(files: FileSystem, directory: str, base_offset: int, decision: _Decision) -> None:
    lines = [_VERSION, " ".join(map(str, decision.replaced)), " ".join(decision.suffixes), ""]
    write_file_atomically(files, _decision_path(directory, base_offset), "\n".join(lines).encode())


def _read_decision(files: FileSystem, directory: str, base_offset: int) -> _Decision:
    path = _decision_path(directory, base_offset)
    try:
        version, replaced, suffixes = read_file(files, path).decode().splitlines()
        decision = _Decision([int(offset) for offset in replaced.split()], suffixes.split())
    except ValueError as error:
        raise MalformedSwap(f"{path}: {error}") from error
    if version != _VERSION or not set(decision.suffixes) <= set(SEGMENT_SUFFIXES):
        raise MalformedSwap(f"{path}: version {version}, files {suffixes}")
    return decision


def _decision_path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, file_name(base_offset, SWAP_SUFFIX))


def _is_decision(name: str) -> bool:
    return name.removesuffix(SWAP_SUFFIX).isdigit()


def _base_offset(name: str) -> int:
    return int(name.split(".", 1)[0])


def _next_offset(files: FileSystem, path: str, base_offset: int) -> int:
    next_offset = base_offset
    file = files.open(path, read_only=True)
    try:
        position, size = 0, file.size()
        while position + HEADER_SIZE <= size:
            header = read_header(file.pread(HEADER_SIZE, position))
            if header.magic != MAGIC or header.length < MIN_LENGTH:
                logger.error("%s is corrupt at position %d", path, position)
                break
            next_offset = header.next_offset
            position += header.size
    finally:
        file.close()
    return next_offset
