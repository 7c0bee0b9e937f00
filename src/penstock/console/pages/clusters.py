"""All clusters of a console, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.console import units
from penstock.console.markup import Child, Markup, tag
from penstock.console.pages.layout import Column, table
from penstock.console.views.clusters import Glance, cluster_path
from penstock.console.views.text import one_line


def listing(clusters: Sequence[Glance]) -> Markup:
    columns = [
        Column("Cluster"),
        Column("State"),
        Column("Brokers"),
        Column("Without a leader", number=True),
        Column("Under-replicated", number=True),
        Column("Topics", number=True, minor=True),
        Column("Groups", number=True, minor=True),
        Column("Largest lag", number=True),
        Column("Written", number=True),
        Column("On disk", number=True, minor=True),
    ]
    return table(columns, map(_row, clusters), caption="Clusters")


def _row(each: Glance) -> list[Child]:
    name = tag("a", each.name, href=f"{cluster_path(each.name)}/", class_="name")
    view = each.view
    if each.needs_sign_in:
        state = tag("a", "sign in", href=f"{cluster_path(each.name)}/sign-in")
    elif each.problem or view is None:
        state = tag(
            "span", one_line(each.problem or "not observed yet", 120), class_="bad" if each.problem else "quiet"
        )
    else:
        state = tag("span", "healthy" if view.is_healthy else "look", class_="good" if view.is_healthy else "bad")
    if view is None:
        return [name, state, *[units.UNKNOWN] * 8]
    return [
        name,
        state,
        f"{view.up} of {len(view.brokers)} up",
        units.count(len(view.offline)),
        units.count(len(view.under_replicated)),
        units.count(view.topics),
        units.count(view.groups),
        units.count(view.largest_lag),
        units.rate(view.records, "records"),
        units.size(view.size),
    ]
