"""A connection to the broker that the tests of this process share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing.nodes import RunningNode
from wire import Wire


@pytest.fixture
def wire(broker: RunningNode) -> Iterator[Wire]:
    with Wire(broker) as connection:
        yield connection


@pytest.fixture
def complaints(broker: RunningNode) -> Callable[[], str]:
    """What the broker has logged since the test began."""
    before = len(broker.log_text())
    return lambda: broker.log_text()[before:]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is full soon."""
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)
