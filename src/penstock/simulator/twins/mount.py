"""The file system of one simulated process, for as long as that process lives.

A killed process does nothing more, but the Python code that simulates it has `finally` blocks and clean-up that would
still write. A mount, like an open file, is dead after `SimulatedDisk.crash` and `power_loss`: every operation on it
raises `ProcessKilled`. With a number of `operations` the process is killed before the change after so many; this is how
"may be killed at any point" is tested point by point.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.simulator.twins.disk import SimulatedDisk, SimulatedFile
from penstock.simulator.twins.threads import ProcessKilled, switch_point

__all__ = ["Mount", "ProcessKilled"]


class Mount:
    def __init__(self, disk: SimulatedDisk, *, operations: int | None = None) -> None:
        self._disk = disk
        self._generation = disk.generation
        self._operations_left = operations
        self.opened: set[SimulatedFile] = set()

    @property
    def alive(self) -> bool:
        return self._generation == self._disk.generation and self._operations_left != -1

    def kill(self) -> None:
        """Kills only this process; others that use the disk continue."""
        self._operations_left = -1
        for file in list(self.opened):
            file.close()

    def check(self, *, changing: bool = True) -> None:
        switch_point()
        if not self.alive:
            raise ProcessKilled
        if changing and self._operations_left is not None:
            if self._operations_left == 0:
                self.kill()
                raise ProcessKilled
            self._operations_left -= 1

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        self.check(changing=create)
        file = self._disk.open(path, create=create, read_only=read_only)
        file.belongs_to(self)
        return file

    def exists(self, path: str) -> bool:
        self.check(changing=False)
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        self.check(changing=False)
        return self._disk.is_directory(path)

    def list(self, path: str) -> list[str]:
        self.check(changing=False)
        return self._disk.list(path)

    def size(self, path: str) -> int:
        self.check(changing=False)
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        self.check(changing=False)
        return self._disk.modified_ms(path)

    def make_directories(self, path: str) -> None:
        self.check()
        self._disk.make_directories(path)

    def rename(self, source: str, target: str) -> None:
        self.check()
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self.check()
        self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        self.check()
        self._disk.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self.check()
        self._disk.sync_directory(path)

    def free_bytes(self, path: str) -> int:
        self.check(changing=False)
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        self.check(changing=False)
        return self._disk.total_bytes(path)


class DoomedMount(Mount):
    """The files of a process that can be killed at one of its own changes, not only between its steps."""

    def __init__(self, disk: SimulatedDisk, on_killed: Callable[[], None]) -> None:
        super().__init__(disk)
        self._on_killed = on_killed
        self._changes_left: int | None = None

    def die_after(self, changes: int) -> None:
        self._changes_left = changes

    def check(self, *, changing: bool = True) -> None:
        super().check(changing=changing)
        if changing and self._changes_left is not None:
            if self._changes_left == 0:
                self.kill()
                self._on_killed()
                raise ProcessKilled
            self._changes_left -= 1
