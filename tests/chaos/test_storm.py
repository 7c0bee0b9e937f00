"""Real clusters on hosts of their own, hurt by everything at once; the simulator's laws, asked of their logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.hosts import CLIENTS, network, why_not
from chaos.storm import FAULTS, HOSTS

STORM_S = float(os.environ.get("PENSTOCK_STORM_SECONDS", "1800"))

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def storm(directory: Path, seconds: float, seed: int, faults: list[str]) -> str:
    """What it printed; the test fails as it does."""
    with network(HOSTS) as name:
        command = ["ip", "netns", "exec", f"{name}-{CLIENTS}", sys.executable, "-m", "chaos.storm"]
        played = subprocess.run(
            [*command, name, str(directory), str(seconds), str(seed), *faults],
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    print(played.stdout)
    assert played.returncode == 0, played.stdout[-3000:]
    return played.stdout


def test_a_short_storm(tmp_path: Path) -> None:
    said = storm(tmp_path, 0, 1, ["full_disk", "cut_two_hosts", "failing_writes"])
    assert "nothing lost, doubled, reordered, or aborted and seen" in said


@pytest.mark.soak
@pytest.mark.timeout(4 * STORM_S)
def test_half_an_hour_of_storm(tmp_path: Path) -> None:
    said = storm(tmp_path, STORM_S, 2, [])
    assert all(fault in said for fault in FAULTS)
