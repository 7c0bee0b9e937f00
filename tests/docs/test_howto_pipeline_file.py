"""The pipeline of the how-to is valid, also with what the page about clusters adds, and mistakes are found as printed.

Its own tests run in tests/spark, where Spark is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from documentation import blocks_of
from penstock.cli.main import run

HOWTO = Path(__file__).parents[2] / "docs" / "howto"


def yaml_of(page: str) -> str:
    (found,) = [text for language, text in blocks_of(HOWTO / page) if language == "yaml"]
    return found


def test_the_file_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "fuel.yaml"
    for text in (yaml_of("pipeline.md"), yaml_of("pipeline.md") + yaml_of("spark-cluster.md")):
        file.write_text(text)
        assert run(["pipeline", "validate", "fuel.yaml"]) == 0
    assert capsys.readouterr().out == "fuel.yaml: valid\n" * 2

    file.write_text(yaml_of("pipeline.md").replace("SELECT truck, liters", "SELECT truck, liter"))
    assert run(["pipeline", "validate", "fuel.yaml"]) == 1
    first = capsys.readouterr().err.splitlines()[0]
    assert f"    {first}\n" in (HOWTO / "pipeline.md").read_text(encoding="utf-8")
