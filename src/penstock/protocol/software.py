"""The names and versions of client software in ApiVersions requests."""

from __future__ import annotations

import re

from penstock.protocol.messages.api_versions import ApiVersionsRequest

_software = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?").fullmatch

NAMED_SINCE = 3


def names_software(request: ApiVersionsRequest, version: int) -> bool:
    """Whether the client's name and version are well-formed; earlier versions of the request have neither."""
    return version < NAMED_SINCE or bool(
        _software(request.client_software_name) and _software(request.client_software_version)
    )
