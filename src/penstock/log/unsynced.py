"""What a log has changed on disk since it was last synced: file contents, and names in directories.

The event loop notes; `sync`, on a worker thread, syncs what was noted when it began, through handles of its own. A note
is taken off before its sync and put back if that fails: what changes meanwhile, and is noted again, is left for the
next one.
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
        """It is gone, or has another name now."""
        self._paths.discard(path)

    def relocate(self, former: str, directory: str) -> None:
        """A directory was renamed, and with it the paths of what is in it."""
        self._paths = {os.path.join(directory, os.path.relpath(path, former)) for path in self._paths}
        if former in self._directories:
            self._directories = self._directories - {former} | {directory}

    def sync(self) -> None:
        """Contents first, then names: a name that survives a power loss has its contents."""
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
        """Now, noted or not: another thread may have taken the note off and not be done."""
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
        return  # deleted by retention meanwhile: there is nothing left to keep
    try:
        file.sync()
    finally:
        file.close()
