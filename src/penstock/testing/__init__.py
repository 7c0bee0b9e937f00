"""For tests of applications: a real cluster in a with-block. As fixtures, see `plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster as Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> object:
    """pytest loads the plugin in every run, and must not pay for a cluster that nobody asks for."""
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.testing.cluster import Cluster

    return Cluster
