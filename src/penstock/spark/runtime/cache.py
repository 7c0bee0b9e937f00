"""Caches files that can be regenerated, between starts; several processes may write the same file at once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import BinaryIO


def cache_directory(environment: Mapping[str, str] = os.environ) -> str:
    """The user's cache directory. If the home directory is not writable, a temporary one that no other user can
    write."""
    usual = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for directory in (os.path.join(usual, "penstock"), os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}")):
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK) and os.stat(directory).st_uid == os.getuid():
            return directory
    return tempfile.mkdtemp(prefix="penstock-")


def scripts(texts: Mapping[str, str]) -> str:
    """A directory with these scripts, by their paths in it; its name depends on their contents."""
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
    directory = os.path.join(cache_directory(), "scripts", digest)
    for name, text in texts.items():
        path = os.path.join(directory, name)
        if not _holds(path, text.encode()):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with appearing(path, mode=0o755) as file:
                file.write(text.encode())
    return directory


@contextlib.contextmanager
def appearing(path: str, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Write a file that appears completely or not at all."""
    descriptor, written = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".")
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.chmod(written, mode)
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


def _holds(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == content and os.access(path, os.X_OK)
    except OSError:
        return False
