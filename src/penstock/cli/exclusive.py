"""A directory that one command uses at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from penstock.cli.output import fail


@contextlib.contextmanager
def exclusive(directory: str, command: str, advice: str) -> Iterator[None]:
    """Hold the lock of a directory. It ends with the process, however that ends."""
    os.makedirs(directory, exist_ok=True)
    descriptor = os.open(os.path.join(directory, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            fail(f"{directory} is in use by another {command} (process {owner}); {advice}")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
