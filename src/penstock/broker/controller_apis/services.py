"""The services that the API handlers of controller listeners use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.broker.metadata.controller_upkeep import ControllerUpkeep
from penstock.broker.metadata.forwarding import Forwarding
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.net.router import Route
from penstock.security.authorizer import Authorizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerServices:
    cluster_id: str
    authorizer: Authorizer
    quorum: MetadataQuorum
    upkeep: ControllerUpkeep
    forwarding: Forwarding
    routes: Mapping[int, Route]
