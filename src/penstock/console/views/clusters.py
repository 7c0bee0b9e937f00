"""Several clusters side by side: their names, and what is said about each on the page of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.client.errors import BadSetting
from penstock.console.views.overview import Overview, overview
from penstock.console.views.sample import Seen

CLUSTERS_MAX = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True)
class NamedCluster:
    name: str
    """Empty for the only cluster of a console, which has no name."""
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Glance:
    name: str
    seen: Seen | None
    needs_sign_in: bool = False

    @property
    def view(self) -> Overview | None:
        return None if self.seen is None else overview(self.seen)

    @property
    def problem(self) -> str:
        return "" if self.seen is None else self.seen.problem or ""


def parse_clusters(given: Sequence[str]) -> tuple[NamedCluster, ...]:
    """`NAME=HOST:PORT,...`, or `NAME=@PROFILE`; `@PROFILE` alone has the name of the profile."""
    found: dict[str, NamedCluster] = {}
    for text in given:
        name, equals, bootstrap = text.partition("=")
        if text.startswith("@"):
            name, bootstrap = text[1:], text
        elif not equals or not bootstrap:
            raise BadSetting(f"--cluster {text!r} is not NAME=HOST:PORT or @PROFILE")
        if not _NAME.fullmatch(name):
            raise BadSetting(f"--cluster {text!r}: a name has letters, digits, dots, dashes, and at most 40 of them")
        if name in found:
            raise BadSetting(f"--cluster: two clusters have the name {name!r}")
        found[name] = NamedCluster(name, bootstrap)
    if len(found) > CLUSTERS_MAX:
        raise BadSetting(f"--cluster: at most {CLUSTERS_MAX} clusters")
    return tuple(found.values())


def cluster_path(name: str) -> str:
    return f"/c/{name}"
