"""Tracks the changes of a log on disk since the last sync: file contents, and names in directories.

The event loop records changes. `sync`, on a worker thread, syncs the changes recorded when it began, with its own
handles. It removes a record before its sync and restores it if the sync fails: a change that is recorded meanwhile is
left for the next sync.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from penstock.io.files import FileSystem


class Unsynced:
    __slots__ = ("_directories", "_files", "_paths")

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._paths: set[str] = set()
        self._directories: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._paths or self._directories)

    def add(self, path: str) -> None:
        self._paths.add(path)

    def add_existing(self, paths: Iterable[str]) -> None:
        self._paths.update(path for path in paths if self._files.exists(path))

    def add_directory(self, path: str) -> None:
        self._directories.add(path)

    def forget(self, path: str) -> None:
        """Drop a file that was removed or renamed."""
        self._paths.discard(path)

    def relocate(self, former: str, directory: str) -> None:
        """Update the paths in a directory that was renamed."""
        self._paths = {os.path.join(directory, os.path.relpath(path, former)) for path in self._paths}
        if former in self._directories:
            self._directories = self._directories - {former} | {directory}

    def sync(self) -> None:
        """Sync contents first, then names: a name that survives a power loss has its contents."""
        paths = sorted(self._paths)
        directories = sorted(self._directories)
        for path in paths:
            self._paths.discard(path)
            try:
                sync_file(self._files, path)
            except BaseException:
                self._paths.add(path)
                raise
        for directory in directories:
            self.sync_directory(directory)

    def sync_directory(self, path: str) -> None:
        """Sync now, whether recorded or not: another thread may have removed the record and not be done."""
        self._directories.discard(path)
        try:
            self._files.sync_directory(path)
        except BaseException:
            self._directories.add(path)
            raise


def sync_file(files: FileSystem, path: str) -> None:
    try:
        file = files.open(path)
    except FileNotFoundError:
        return  # deleted by retention meanwhile: nothing to sync
    try:
        file.sync()
    finally:
        file.close()
