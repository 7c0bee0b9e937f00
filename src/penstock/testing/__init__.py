"""Support for tests of applications: a real cluster in a with-block. For fixtures, see `plugin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster as Cluster

__all__ = ["Cluster"]


def __getattr__(name: str) -> object:
    """Import lazily: pytest loads the plugin in every run, also in those that use no cluster."""
    if name != "Cluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.testing.cluster import Cluster

    return Cluster
