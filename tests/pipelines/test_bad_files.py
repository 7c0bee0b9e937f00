"""Every mistake is reported with its place and its remedy, all of a file at once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.check.validate import validate
from pipelines.bad_files import CASES


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_bad_file(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    file = tmp_path / "pipeline.yaml"
    file.write_text(text, encoding="utf-8")

    problems = [str(problem) for problem in validate(str(file))]

    assert problems == [f"{file}:{each}" for each in expected]


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_bytes(b"name: a\nx: \xff\n")

    assert [str(problem) for problem in validate(str(file))] == [
        f"{file}:2:4: error: not text in UTF-8; save the file as UTF-8"
    ]
