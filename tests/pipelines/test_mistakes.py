"""Every mistake of the table is found where it is, with one message; the same file mended has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.check.validate import validate
from pipelines.mistakes import MISTAKES


def said(text: str, directory: Path) -> list[str]:
    file = directory / "pipeline.yaml"
    file.write_text(text, encoding="utf-8")
    return [str(problem).removeprefix(f"{file}:") for problem in validate(str(file))]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, tmp_path: Path) -> None:
    mistake = MISTAKES[name]

    assert said(mistake.mistaken, tmp_path) == [mistake.says]


@pytest.mark.parametrize("name", MISTAKES)
def test_nothing_is_said_of_the_mended_file(name: str, tmp_path: Path) -> None:
    assert said(MISTAKES[name].mended, tmp_path) == []


def test_there_are_enough() -> None:
    assert len(MISTAKES) >= 79
    assert sum(mistake.spark for mistake in MISTAKES.values()) >= 20
