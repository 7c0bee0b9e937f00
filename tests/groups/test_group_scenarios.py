"""Scenarios as text: a command line, `----`, the records and answers it led to. `pytest --rewrite` writes them anew.

Every step also checks that a coordinator that only read the log knows the same, and that all answers can be sent in the
version they were asked for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from group_world import World

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def play(text: str) -> str:
    """The scenario with what really happens."""
    world = World()
    written = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        commands = [line for line in lines if not line.startswith("#")]
        if "----" in commands:
            commands = commands[: commands.index("----")]
        outcome = [result for line in commands for result in [world.run(line)] if result != "nothing"]
        if commands:
            comments += [*commands, "----", *(outcome or ["nothing"])]
        written.append("\n".join(comments))
    return "\n\n".join(written) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    played = play(text)
    if request.config.getoption("--rewrite"):
        path.write_text(played)
    else:
        assert played == text
