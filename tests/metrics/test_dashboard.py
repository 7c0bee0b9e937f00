"""The Grafana dashboard asks for metrics that there are, by labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.metrics.families import FAMILIES, Family

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "penstock.json"
OF_PROMETHEUS = {"job", "instance", "le"}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


def queries() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel.get("targets", ()):
            yield f"{panel['title']}: {target['refId']}", target["expr"]


def family_of(name: str) -> Family:
    found = FAMILIES.get(name) or FAMILIES.get(re.sub(r"_(bucket|sum|count)$", "", name))
    assert found is not None, f"no metric {name}"
    return found


@pytest.mark.parametrize("expression", [pytest.param(text, id=title) for title, text in queries()])
def test_queries_name_what_there_is(expression: str) -> None:
    named = re.findall(r"\b((?:kafka|penstock|process)_\w+)\{([^}]*)\}", expression)
    assert named
    families = [family_of(name) for name, _ in named]
    known = OF_PROMETHEUS.union(*(family.labels for family in families))
    for family, (_, matchers) in zip(families, named, strict=True):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            assert label in {*family.labels, *OF_PROMETHEUS}
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {label.strip() for label in labels.split(",")} <= known
    if any(family.kind == "counter" for family in families):
        assert re.search(r"\b(rate|increase)\(", expression)
    assert expression.count("(") == expression.count(")")


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells


def test_grafana_can_import_it() -> None:
    """The parts of Grafana's model that a dashboard cannot do without, and names that are used are declared."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert {"title", "uid", "schemaVersion", "templating", "time", "panels"} <= dashboard.keys()
    assert "id" not in dashboard  # Grafana gives one
    variables = dashboard["templating"]["list"]
    declared = {variable["name"] for variable in variables}
    used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text(encoding="utf-8")))
    assert {name for name in used if not name.startswith("__")} == declared
    for variable in variables:
        if variable["type"] == "query":
            for metric in re.findall(r"label_values\((\w+),", variable["query"]["query"]):
                family_of(metric)
    for panel in panels():
        assert panel["type"] in {"row", "stat", "timeseries"}
        targets = panel.get("targets", [])
        assert bool(targets) == (panel["type"] != "row"), panel["title"]
        assert len({target["refId"] for target in targets}) == len(targets)
        for part in (panel, *targets) if targets else ():
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
