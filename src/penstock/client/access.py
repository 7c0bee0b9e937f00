"""How a client reaches a cluster: addresses, and security settings by Kafka's names.

Wherever our clients take bootstrap addresses, the text may end in a reference to settings that are kept elsewhere:

    @prod                               the profile `prod`
    @/etc/penstock/client.properties    a file as for Kafka's tools; a path contains a slash
    kafka-1:9093@prod                   the profile `prod`, at these addresses
    kafka-1:9093@?security.protocol=SSL&ssl.truststore.type=PEM&ssl.truststore.location=/etc/ca.pem
                                        the settings themselves; a secret among them is itself a reference,
                                        `${secret:env:NAME}` or `${secret:file:PATH}`

A reference contains no secret, so it may be part of plans, checkpoints, logs and command lines. Each process resolves
it for itself when it makes a client.

Profiles are the tables of `~/.config/penstock/profiles.toml` (or of the file that `PENSTOCK_PROFILES` names), which
other users must not be able to read:

    [prod]
    bootstrap.servers = "kafka-1:9093,kafka-2:9093"
    config = "prod.properties"          # more settings, in a file beside this one
    sasl.mechanism = "SCRAM-SHA-512"    # overrides the file
"""

from __future__ import annotations

import os
import re
import stat
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.errors import BadSetting
from penstock.client.secrets import REFERENCE, reveal
from penstock.settings.properties import parse_properties
from penstock.settings.tls import TLS_SETTINGS

PROFILES_VARIABLE: Final = "PENSTOCK_PROFILES"
BOOTSTRAP: Final = "bootstrap.servers"
_CONFIG: Final = "config"
_SECRET: Final = re.compile(r"password|passphrase|secret|jaas|access\.token|\.private\.key|keystore\.key$|\.key\.pem$")
_SETTINGS: Final = frozenset(
    {"security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "sasl.jaas.config"}
    | {"sasl.oauthbearer.token.endpoint.url"}
    | (set(TLS_SETTINGS) - {"ssl.client.auth", "ssl.principal.mapping.rules"})
    - {"ssl.allow.dn.changes", "ssl.allow.san.changes"}
)
_PROFILE: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Access:
    """The resolved form. `properties` may contain secrets and is never shown."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Reference:
    """The parts of a bootstrap text."""

    addresses: str
    source: str = ""  # a profile's name or a path
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.source and not self.settings:
            return self.addresses
        query = f"?{urllib.parse.urlencode(self.settings, safe='/:,${}')}" if self.settings else ""
        return f"{self.addresses}@{self.source}{query}"

    @property
    def is_file(self) -> bool:
        return "/" in self.source


def is_setting_of_clients(name: str) -> bool:
    """Whether our own client has this security setting."""
    return name in _SETTINGS


def is_secret(name: str) -> bool:
    """Whether the setting of this name contains a secret."""
    return _SECRET.search(name.lower()) is not None


def parse_reference(text: str) -> Reference:
    """BadSetting for a reference that is malformed or contains a secret; nothing is resolved."""
    addresses, at, rest = text.strip().partition("@")
    if not at:
        return Reference(addresses)
    source, _, query = rest.partition("?")
    if not source and not query:
        raise BadSetting(f"{text!r}: after @ comes the name of a profile, or a path with a slash")
    if source and "/" not in source and not _PROFILE.fullmatch(source):
        raise BadSetting("a profile's name is made of letters, digits, '.', '-' and '_'; a path has a slash")
    settings = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    for name in settings:
        if is_secret(name) and not REFERENCE.fullmatch(settings[name]):
            raise BadSetting(
                f"{name} is a secret and cannot be part of an address: put it into a file or a profile, or write "
                "${secret:env:NAME} or ${secret:file:PATH}"
            )
    return Reference(addresses.strip(), source, settings)


def with_source(bootstrap: str, source: str) -> str:
    """The text with a reference to this profile or path, instead of the one that it has."""
    found = parse_reference(bootstrap)
    return str(Reference(found.addresses, source, found.settings))


def with_settings(bootstrap: str, settings: Mapping[str, str]) -> str:
    """The text with these settings; BadSetting if they contain a secret that is not a reference."""
    if not settings:
        return bootstrap
    found = parse_reference(bootstrap)
    return str(parse_reference(str(Reference(found.addresses, found.source, {**found.settings, **settings}))))


def completed(reference: str, addresses: str) -> str:
    """A reference without addresses of its own: unchanged if the settings contain them, else with these."""
    found = parse_reference(reference)
    if found.addresses or BOOTSTRAP in _settings_of(found):
        return reference
    return str(Reference(addresses, found.source, found.settings))


def open_access(bootstrap: str, options: Mapping[str, str] | None = None) -> Access:
    """Resolve a bootstrap text; `options` override the settings that it refers to. BadSetting if that fails."""
    if "@" not in bootstrap:
        return Access(bootstrap, dict(options or {}))
    reference = parse_reference(bootstrap)
    settings = {name: reveal(value) for name, value in reference.settings.items()}
    found = {**_settings_of(reference), **settings, **(options or {})}
    addresses = reference.addresses or found.get(BOOTSTRAP, "")
    if not addresses:
        raise BadSetting(f"@{reference.source} has no {BOOTSTRAP}: add it, or write HOST:PORT@{reference.source}")
    return Access(addresses, found)


def read_properties(path: str, *, private: bool = False) -> dict[str, str]:
    """The settings in a file as for Kafka's tools. `private`: refuse a file that other users may read."""
    try:
        with open(path, encoding="utf-8") as file:
            if private:
                _check_private(path, file.fileno())
            return parse_properties(file.read())
    except OSError as error:
        raise BadSetting(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadSetting(f"{path}: not a text file in UTF-8") from None


def profiles_path(environment: Mapping[str, str]) -> str:
    given = environment.get(PROFILES_VARIABLE)
    if given:
        return given
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "penstock", "profiles.toml")


def _settings_of(reference: Reference) -> dict[str, str]:
    if not reference.source:
        return {}
    if reference.is_file:
        return read_properties(os.path.expanduser(reference.source))
    return _read_profile(profiles_path(os.environ), reference.source)


def _read_profile(path: str, name: str) -> dict[str, str]:
    import tomllib  # only for profiles: most commands have none

    try:
        with open(path, "rb") as file:
            _check_private(path, file.fileno())
            profiles = tomllib.load(file)
    except OSError as error:
        raise BadSetting(f"@{name}: there is no profile: {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # The parser's text has a position, and no content of the file beyond one character.
        raise BadSetting(f"{path}: not a TOML file: {error}") from None
    profile = profiles.get(name)
    if not isinstance(profile, dict):
        known = ", ".join(sorted(each for each, value in profiles.items() if isinstance(value, dict))) or "none"
        raise BadSetting(f"{path} has no profile {name}; there are: {known}")
    settings = dict(_flat(path, profile))
    config = settings.pop(_CONFIG, None)
    if config is None:
        return settings
    file_path = os.path.join(os.path.dirname(path), os.path.expanduser(config))
    return {**read_properties(file_path, private=True), **settings}


def _flat(path: str, table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings by dotted names: TOML reads `sasl.mechanism` as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(path, value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield prefix + name, str(value)
        else:
            raise BadSetting(f"{path}: {prefix}{name} is neither text nor a number")


def _check_private(path: str, descriptor: int) -> None:
    if stat.S_IMODE(os.fstat(descriptor).st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadSetting(f"{path} may contain secrets, and other users can reach it: chmod 600 {path}")
