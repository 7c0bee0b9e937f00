"""Share partitions as stories: `share_world` explains the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenario_text import play
from share_world import ShareWorld

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    play(path, ShareWorld().execute, bool(request.config.getoption("--rewrite")))
