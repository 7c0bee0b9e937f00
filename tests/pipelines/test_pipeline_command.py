"""`penstock pipeline validate`, `graph` and `schema`."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_validate_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text(GOOD)
    two.write_text(GOOD.replace("name: a", "name: b"))
    assert run(["pipeline", "validate", str(one), str(two)]) == 0
    assert capsys.readouterr() == (f"{one}: valid\n{two}: valid\n2 pipelines, all valid\n", "")

    two.write_text(GOOD + "trigger: soon\nbootstrap: kafka\n")
    assert run(["pipeline", "validate", str(one), str(two)]) == 1
    output = capsys.readouterr()
    assert output.out == f"{one}: valid\n{two}: 2 errors\n2 pipelines, 1 with errors (2 errors)\n"
    assert output.err.count(f"{two}:") == 2

    assert run(["pipeline", "validate", str(one), str(two), "--json"]) == 1
    assert {problem["file"] for problem in json.loads(capsys.readouterr().out)} == {str(two)}


def test_validate_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "shop" / "b.yml").write_text(GOOD.replace("name: a", "name: b"))
    (tmp_path / "shop" / "broken.yaml").write_text("name: [\nsources: {}\n")
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "two.yaml").write_text("kind: Pod\n---\nkind: Service\n")
    (tmp_path / ".git" / "c.yaml").write_text(GOOD)
    (tmp_path / "notes.txt").write_text("sources:")

    assert run(["pipeline", "validate", str(tmp_path)]) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        f"{tmp_path}/a.yaml: valid",
        f"{tmp_path}/shop/b.yml: valid",
        f"{tmp_path}/shop/broken.yaml: 1 error",
        "3 pipelines, 1 with errors (1 error)",
    ]
    skipped = [line for line in output.err.splitlines() if line.endswith("skipped")]
    assert skipped == [
        f"{tmp_path}/{name}: not a pipeline (it has neither sources nor sinks), skipped"
        for name in ("two.yaml", "values.yaml")
    ]

    (tmp_path / "empty").mkdir()
    assert run(["pipeline", "validate", str(tmp_path / "empty")]) == 1
    assert "no pipeline in this directory or below" in capsys.readouterr().err


def test_validate_starts_no_spark(tmp_path: Path) -> None:
    """Neither Spark nor what makes a command slow."""
    (tmp_path / "a.yaml").write_text(GOOD + "steps: {b: {sql: 'SELECT upper(value) AS v FROM one'}}\n")
    program = (
        "import sys; from penstock.pipelines.check.validate import validate; "
        "validate(sys.argv[1]); "
        "print(*({'pyspark', 'py4j', 'numba', 'pyarrow'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.yaml")], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


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
