"""Promotes a future log to the current log of its partition, in another directory, in crash-safe steps.

Two directories, often on two disks, cannot be changed in one step: for a moment there are two logs of one partition
that both look current, or none. Kafka renames the future log first and then the old one; a broker that is killed in
between does not start again. Here the future log records which logs it replaces in a file of its own
(`former-directories`: paths of log directories). The steps, each durable before the next begins:

    prepare     the future log is synced as far as it goes; the file is written             any thread
    promote     the directory of the future log is renamed: this is the decision            the event loop
    set aside   the directory of the old log is renamed (`-delete`)                         the event loop
    finish      the removal of the old name is synced; then the file is removed             any thread
    settle      at a start: an old log that another log replaces is set aside

Before the decision the file has no meaning, and the move continues. After it the old log is obsolete, even if its name
reappears after a power loss, and even if its disk was offline and returns years later: in that case the file still
exists. Nothing is appended to the future log before the decision is durable, and nothing to the old log after it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence

from penstock.io.files import FileSystem, read_file, write_file_atomically
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.model.ids import TopicPartition

logger = logging.getLogger("penstock.log")

FORMER_DIRECTORIES = "former-directories"
_VERSION = "0"


class Undecided(Exception):
    """A future log was promoted, but perhaps not durably. No append to either log is allowed before a restart has
    determined which of them is current."""


def prepare_promotion(files: FileSystem, future: str, current: str) -> None:
    """Write the file of the future log. `future` and `current` are the directories of the two logs. If the current log
    itself still replaces older logs that could not be set aside, the future log replaces those, too."""
    former = [_parent(current), *read_former_directories(files, current)]
    _write(files, future, list(dict.fromkeys(former)))


def promote(files: FileSystem, target: LogDirectory, future: Log) -> str:
    """Rename the directory of the future log and return its new path. OSError: nothing has changed."""
    path = target.directory_of(future.topic_partition)
    files.rename(future.directory, path)
    try:
        files.sync_directory(target.path)
    except OSError as error:
        raise Undecided(f"{path} cannot be synced: {error}") from error
    return path


def promote_abandoned(files: FileSystem, future: str, path: str, offline: Iterable[str]) -> None:
    """Promote a future log whose current log is in no online directory. If the current log returns with one of the
    offline directories, it is obsolete."""
    former = [*map(os.path.abspath, offline), *read_former_directories(files, future)]
    _write(files, future, list(dict.fromkeys(former)))
    files.rename(future, path)
    files.sync_directory(_parent(path))


def finish_promotion(files: FileSystem, directory: str, former: str) -> None:
    """Sync the rename of the old log's directory, `former`, and stop replacing it. No future log may be created in that
    directory before: two logs that replace each other would both be lost."""
    files.sync_directory(_parent(former))
    left = [path for path in read_former_directories(files, directory) if path != _parent(former)]
    _write(files, directory, left)


def settle_promotions(files: FileSystem, directories: Sequence[LogDirectory], unique: Callable[[], str]) -> None:
    """At a start, before any log is opened: complete promotions that were decided. Old logs that are set aside become
    leftovers of their directories."""
    if len(directories) < 2:
        return
    online = {os.path.abspath(directory.path): directory for directory in directories}
    for directory in directories:
        for partition in directory.partitions():
            path = directory.directory_of(partition)
            former = read_former_directories(files, path) if files.exists(path) else []
            for parent in former:
                if parent in online:
                    _set_aside(files, online[parent], partition, unique())
                    finish_promotion(files, path, online[parent].directory_of(partition))


def _set_aside(files: FileSystem, directory: LogDirectory, partition: TopicPartition, unique: str) -> None:
    if files.exists(directory.directory_of(partition)):
        logger.warning("%s in %s was moved to another directory and is removed here", partition, directory.path)
        directory.delete(partition, unique)


def read_former_directories(files: FileSystem, directory: str) -> list[str]:
    """The log directories whose log of the same partition this one replaces."""
    try:
        lines = read_file(files, os.path.join(directory, FORMER_DIRECTORIES)).decode().splitlines()
    except FileNotFoundError:
        return []
    return lines[1:] if lines and lines[0] == _VERSION else []


def _write(files: FileSystem, directory: str, former: list[str]) -> None:
    path = os.path.join(directory, FORMER_DIRECTORIES)
    if former:
        write_file_atomically(files, path, "\n".join([_VERSION, *former, ""]).encode())
    else:
        files.remove(path)
        files.sync_directory(directory)


def _parent(directory: str) -> str:
    return os.path.dirname(os.path.abspath(directory))
