"""Directory locks: at most one process uses a directory. The lock file is the same as Kafka's."""

from __future__ import annotations

import fcntl
import os

LOCK_FILE = ".lock"


class DirectoryLock:
    """A lock that is held until the end of the `with` block, or of the process."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fd = -1

    def __enter__(self) -> None:
        path = os.path.join(self._directory, LOCK_FILE)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise BlockingIOError(error.errno, "another process is using this directory", self._directory) from error

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)
