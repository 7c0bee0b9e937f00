"""`Registry`: a client of a schema registry whose options may be secrets or a profile.

    Registry("http://127.0.0.1:8081")
    Registry("https://registry:8443", {"basic.auth.user.info": "${secret:env:REGISTRY_USER}"})
    Registry("@prod")

A profile (`penstock.client.access`) contains `schema.registry.url`, and the options with the same prefix:
`schema.registry.basic.auth.user.info`, `schema.registry.ssl.ca.location`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.client.access import open_access
from penstock.client.errors import BadSetting
from penstock.client.secrets import reveal
from penstock.serializers.registry_client import RegistryClient

_PREFIX: Final = "schema.registry."
_URL: Final = "url"


class Registry(RegistryClient):
    def __init__(self, urls: str, options: Mapping[str, str] | None = None, timeout: float = 10) -> None:
        """BadSetting for an address or an option that cannot be used."""
        settings: dict[str, str] = {}
        if urls.startswith("@"):
            found = open_access(f"registry{urls}").properties
            settings = {name.removeprefix(_PREFIX): found[name] for name in found if name.startswith(_PREFIX)}
            if _URL not in settings:
                raise BadSetting(f"{urls} has no {_PREFIX}{_URL}")
            urls = settings.pop(_URL)
        settings |= {name.removeprefix(_PREFIX): value for name, value in (options or {}).items()}
        try:
            super().__init__(reveal(urls), {name: reveal(value) for name, value in settings.items()}, timeout)
        except (ValueError, OSError) as error:
            raise BadSetting(str(error)) from error
