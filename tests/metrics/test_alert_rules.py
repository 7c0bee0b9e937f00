"""The alert rules name metrics that there are, by labels that they have; Prometheus reads them, if it is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.broker.metrics.families import FAMILIES as OF_BROKERS
from penstock.pipelines.engine.metrics import FAMILIES as OF_PIPELINES

DOCS = Path(__file__).parents[2] / "docs"
FILE = DOCS / "prometheus" / "penstock-alerts.yml"
OF_PROMETHEUS = {"job", "instance", "le"}
DURATION = re.compile(r"\d+[smhd]")

LABELS: dict[str, tuple[str, ...]] = {
    **{name: tuple(family.labels) for name, family in OF_BROKERS.items()},
    **{family.name: family.labels for family in OF_PIPELINES},
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    assert [set(group) for group in groups] == [{"name", "rules"}] * 2
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in rules()])
def test_a_rule_is_about_something_that_there_is(rule: dict[str, Any]) -> None:
    assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert DURATION.fullmatch(rule.get("for", "1m"))
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description"}
    expression = rule["expr"]
    named = re.findall(r"\b((?:kafka|penstock)_\w+)(?:\{([^}]*)\})?", expression)
    assert named
    known = set(OF_PROMETHEUS)
    for name, matchers in named:
        family = name if name in LABELS else re.sub(r"_(bucket|sum|count)$", "", name)
        assert family in LABELS, f"no metric {name}"
        known.update(LABELS[family])
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= set(LABELS[family])
        if name.endswith(("_total", "_sum", "_count", "_bucket")):
            assert re.search(rf"(rate|increase)\({name}(\{{[^}}]*\}})?\[", expression)
    aggregated = re.findall(r"\bby \(([^)]*)\)", expression)
    told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert told <= (set(", ".join(aggregated).split(", ")) if aggregated else known)
    assert expression.count("(") == expression.count(")")


def test_rules_are_named_once() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 10


def test_every_expression_of_the_pages_is_a_rule() -> None:
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    expressions = re.findall(r"^\| `([^`]+ [<>!]=? [^`]+)`", page, re.MULTILINE)
    assert len(expressions) > 5
    assert set(expressions) <= {rule["expr"] for rule in rules()}


def test_prometheus_reads_them() -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run([tool, "check", "rules", str(FILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
