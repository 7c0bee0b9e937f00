"""The cluster that a pipeline uses: that of the option, else of its file, else of the environment variable.

A file says where its pipeline belongs: a variable that is set for other commands must not send it elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.access import DEFAULT_BOOTSTRAP, from_variables
from penstock.client.access import completed

if TYPE_CHECKING:
    from penstock.pipelines.spec.loading import Loaded


class ChosenCluster(NamedTuple):
    address: str
    origin: str
    """Where the address comes from."""

    def __str__(self) -> str:
        without_settings = self.address.partition("?")[0].removesuffix("@")
        return f"{without_settings} ({self.origin})"


def cluster_of(option: str | None, loaded: Loaded | None = None) -> ChosenCluster:
    if option and option.startswith("@"):
        # Settings without addresses are for the cluster in the file.
        addresses = loaded.pipeline.bootstrap if loaded is not None else DEFAULT_BOOTSTRAP
        return ChosenCluster(completed(option, addresses), "--profile or --command-config")
    at = loaded.pipeline.at if loaded is not None else str
    if option:
        return ChosenCluster(at(option), "--bootstrap-server")
    variable, name = from_variables() or ("", "")
    if loaded is not None and ("bootstrap",) in loaded.places.nodes:
        file = loaded.file if loaded.environment is None else f"{loaded.file} --env {loaded.environment}"
        instead = f", which overrides {name}={variable}" if variable and variable != loaded.pipeline.bootstrap else ""
        return ChosenCluster(loaded.pipeline.cluster, file + instead)
    return ChosenCluster(at(variable), name) if variable else ChosenCluster(at(DEFAULT_BOOTSTRAP), "the default")
