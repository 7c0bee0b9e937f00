"""`penstock pipeline validate`, `graph` and `schema`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.main import run

GOOD = "name: a\nsources: {one: {topic: x}}\nsinks: {out: {from: one, topic: y, key: value}}\n"


def test_validate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(GOOD)
    assert run(["pipeline", "validate", str(file)]) == 0
    assert capsys.readouterr() == (f"{file}: valid\n", "")

    file.write_text(GOOD + "trigger: soon\n")
    assert run(["pipeline", "validate", str(file)]) == 1
    output = capsys.readouterr()
    assert output.out == f"{file}: 1 error\n"
    assert output.err.startswith(f'{file}:4:10: error: "soon" is not a length of time')

    assert run(["pipeline", "validate", str(file), "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)
    assert (problem["line"], problem["column"], problem["path"]) == (4, 10, ["trigger"])


def test_graph_and_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(GOOD)
    assert run(["pipeline", "graph", str(file)]) == 0
    assert "=> out: topic y" in capsys.readouterr().out
    assert run(["pipeline", "graph", "--mermaid", str(file)]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR")
    assert run(["pipeline", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Penstock pipeline"


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "validate", str(tmp_path / "missing.yaml")]) == 1
    assert capsys.readouterr().err == f"penstock: {tmp_path}/missing.yaml: No such file or directory\n"
    (tmp_path / "a.yaml").write_text(GOOD)
    assert run(["pipeline", "graph", str(tmp_path / "a.yaml"), "--env", "prod"]) == 1
    assert 'no environment "prod"; there are none' in capsys.readouterr().err
    assert run(["pipeline", "graph", str(tmp_path / "a.yaml"), "--set", "x"]) == 1
    assert capsys.readouterr().err == "penstock: --set 'x' is not KEY=VALUE\n"
