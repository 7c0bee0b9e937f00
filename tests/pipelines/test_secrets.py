"""Secrets are used and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.check.analysis import analyse
from penstock.pipelines.check.query_plan import plan
from penstock.pipelines.operate import graph
from penstock.pipelines.spec.loading import dumped, load
from penstock.pipelines.spec.secrets import Secret, SecretMissing, plain, redacted

VALUE = "hunter2-correct-horse"


def test_a_secret_is_revealed_to_spark_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", VALUE)
    (tmp_path / "key").write_text("staple-battery\n")
    file = tmp_path / "orders.yaml"
    file.write_text(
        f"""\
name: orders
parameters: {{password: "${{secret:env:DB_PASSWORD}}"}}
sources:
  orders:
    format: jdbc
    mode: snapshot
    options: {{url: "jdbc:x?password=${{password}}", key: "${{secret:file:{tmp_path}/key}}", fetchsize: 10}}
sinks: {{out: {{from: orders, topic: out}}}}
"""
    )

    pipeline = load(str(file)).pipeline
    options = pipeline.sources["orders"].options
    analysis = analyse(pipeline)
    queries = plan(pipeline, analysis)
    shown = [repr(pipeline), str(options), dumped(pipeline), graph.tree(pipeline, analysis, queries)]
    revealed = plain(options)

    assert revealed == {"url": f"jdbc:x?password={VALUE}", "key": "staple-battery", "fetchsize": "10"}
    assert not any(VALUE in text or "staple" in text for text in [*shown, repr(pipeline), repr(options)])
    assert redacted(f"cannot reach jdbc:x?password={VALUE}: staple-battery") == "cannot reach jdbc:x?password=***: ***"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("${secret:env:NOT_THERE}", "secret:env:NOT_THERE: the environment has no variable NOT_THERE"),
        ("${secret:file:/no/such/file}", "secret:file:/no/such/file: No such file or directory"),
    ],
)
def test_a_secret_that_is_not_there(template: str, message: str) -> None:
    with pytest.raises(SecretMissing, match=message):
        Secret(template).check(environment={})
