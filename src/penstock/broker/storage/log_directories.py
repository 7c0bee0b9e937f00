"""The log directories of a broker: which of them work, and where new replicas go (KIP-858, KIP-1066).

A directory fails alone. It is offline from the first error of a write or a sync until the next start of the broker:
then what it holds is found again, or the disk was replaced, and its replicas begin anew. Two directories take the
broker with them: the one of the metadata log, and the last one. The last one survives the error of a write, as the log
is what it was, and a broker without directories serves nobody; after a failed sync nobody knows what is on the disk.

A full disk is no failed disk, nor is a process that has run out of file descriptors or memory.

A cordoned directory works as before and gets no new replicas.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from penstock.io.files import FileSystem
from penstock.log.directory import LogDirectory
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.settings.logs import ALL_DIRECTORIES

logger = logging.getLogger("penstock.storage")

# Errors that say nothing about the disk, or only that it is full.
_HARMLESS: Final = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EINTR,
        errno.EAGAIN,
    )
)


def is_disk_failure(error: OSError) -> bool:
    return error.errno not in _HARMLESS


def cordoned_paths(setting: Collection[str], paths: Iterable[str]) -> frozenset[str]:
    """The directories that `cordoned.log.dirs` names; `*` stands for all of them."""
    return frozenset(path for path in paths if path in setting or ALL_DIRECTORIES in setting)


class LogDirectories:
    def __init__(
        self,
        files: FileSystem,
        paths: Iterable[str],
        ids: Mapping[str, Uuid],
        offline: Mapping[str, str],
        *,
        metadata_directory: str,
        producer_expiration_ms: int,
    ) -> None:
        """`offline`: directories that could not be used so far, and why. KafkaError if none is left."""
        self._ids = ids
        self._metadata_directory = metadata_directory
        # By path, the reason of each directory that has failed.
        self.offline: dict[str, str] = {path: offline[path] for path in paths if path in offline}
        self.online: list[LogDirectory] = []
        for path in paths:
            if path in self.offline:
                continue
            try:
                self.online.append(LogDirectory(files, path, producer_expiration_ms=producer_expiration_ms))
            except OSError as error:
                if path == metadata_directory:
                    raise
                self.offline[path] = str(error)
        for path, reason in self.offline.items():
            logger.error("log directory %s is offline: %s", path, reason)
        if not self.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "none of the log directories can be used")

    def id_of(self, directory: LogDirectory) -> Uuid:
        return self._ids[directory.path]

    def with_id(self, directory_id: Uuid) -> LogDirectory | None:
        return next((each for each in self.online if self._ids[each.path] == directory_id), None)

    @property
    def online_ids(self) -> list[Uuid]:
        return [self._ids[each.path] for each in self.online]

    def cordoned_ids(self, setting: Collection[str]) -> list[Uuid]:
        cordoned = cordoned_paths(setting, (each.path for each in self.online))
        return [self._ids[each.path] for each in self.online if each.path in cordoned]

    def for_new_replica(self, assigned: Uuid, cordoned: Collection[str]) -> LogDirectory:
        """The directory that the metadata names, or the one with the fewest replicas. If all are cordoned since the
        replica was placed on this broker, it goes into one of them."""
        named = self.with_id(assigned)
        if named is not None:
            return named
        open_ones = [each for each in self.online if each.path not in cordoned]
        return min(open_ones or self.online, key=lambda each: len(each.logs))

    def can_do_without(self, directory: LogDirectory) -> bool:
        return directory.path != self._metadata_directory and len(self.online) > 1

    def take_offline(self, directory: LogDirectory, reason: str) -> None:
        self.online.remove(directory)
        self.offline[directory.path] = reason
        logger.error("log directory %s has failed and is offline: %s", directory.path, reason)
