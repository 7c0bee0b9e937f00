"""What is well-formed in ApiVersions requests: the client's software, and the node that the client means."""

from __future__ import annotations

import re

from penstock.protocol.messages.api_versions import ApiVersionsRequest

_software = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?").fullmatch

NAMED_SINCE = 3
ADDRESSED_SINCE = 5

NO_NODE = -1


def is_well_formed(request: ApiVersionsRequest, version: int) -> bool:
    """Whether the client names its software, and cluster and node together or not at all, if the version has them."""
    if version >= ADDRESSED_SINCE and (request.cluster_id is None) != (request.node_id == NO_NODE):
        return False
    return version < NAMED_SINCE or bool(
        _software(request.client_software_name) and _software(request.client_software_version)
    )
