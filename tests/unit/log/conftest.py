from __future__ import annotations

import pytest

from penstock.simulator.twins.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk
