"""The log directories of a broker: which are online, and where new replicas go (KIP-858, KIP-1066).

A directory fails alone. It is offline from the first failed write or sync until the next start of the broker. At that
start its logs are found again, or the disk was replaced and its replicas start anew. Its replicas leave
`BrokerRole.replicas`, so that no lookup finds them, and `LeaderHints.not_here` answers KAFKA_STORAGE_ERROR. The
controller learns of the failure from a heartbeat. That heartbeat waits until all replicas of the directory have been
reported to be in it (`directory_assignments`): a failure that the controller cannot attribute moves no leadership.

The broker stops if the directory of the metadata log fails, or the last directory. After a failed sync the state of the
disk is unknown (the kernel may have dropped the dirty pages), so only the state found at the next start can be trusted.
A failed write is different: the log is unchanged, the producer gets KAFKA_STORAGE_ERROR, and the next append may
succeed. The last directory therefore survives a failed write, because a broker without directories serves no client; a
broker with other directories does not wait, and takes the directory offline.

A full disk is not a failed disk, nor is a process that has run out of file descriptors or memory.

A cordoned directory works as before but gets no new replicas.
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

# Errors that do not mean a failed disk: the disk is full, or the cause is elsewhere.
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
    """The directories in `cordoned.log.dirs`; `*` means all of them."""
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
        """`offline`: directories known to be unusable, with the reason. Raises KafkaError if none is left."""
        self._ids = ids
        self._metadata_directory = metadata_directory
        # Failed directories: path to reason.
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
        """The directory that the metadata names, or the one with the fewest replicas.

        If all were cordoned after the replica was placed on this broker, it goes into one of them.
        """
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
