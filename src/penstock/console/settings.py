"""The options of `penstock console`, and the rule about where it may listen."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field

from penstock.client.errors import BadSetting

DEFAULT_LISTEN = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    bootstrap: str = ""
    clusters: tuple[str, ...] = ()
    """`NAME=HOST:PORT`: several clusters, instead of the one at `bootstrap`."""
    host: str = "127.0.0.1"
    port: int = 8080
    sign_in: bool = False
    """Ask for a user and password of the cluster, and act as that user."""
    mechanism: str = "SCRAM-SHA-512"
    oidc_issuer: str | None = None
    """Sign in at this OpenID provider, and act with the token that it gives."""
    oidc_client_id: str = ""
    oidc_scope: str = "openid"
    oidc_secret_file: str | None = None
    read_only: bool = False
    masks: tuple[str, ...] = ()
    """`TOPIC:PATH`: fields that are never shown."""
    registry: str | None = None
    pipelines: tuple[str, ...] = ()
    """Pipeline files, whose graphs are drawn."""
    boards: tuple[str, ...] = ()
    """Files that put several reports on one page."""
    history: str = ":memory:"
    prometheus: str | None = None
    """The URL of a Prometheus server, as a source of history."""
    prometheus_match: str = ""
    """Label matchers for its metrics."""
    audit: str | None = None
    """The file for audit lines; None is stderr."""
    certificate: str | None = None
    key: str | None = None
    names: tuple[str, ...] = field(default=())
    """Further names of this server, which the browser may ask for."""


def parse_listen(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise BadSetting(f"--listen {text!r} is not HOST:PORT")
    return host, int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check(settings: ConsoleSettings) -> None:
    """BadSetting for a console that everybody in the network could use, or passwords that could be overheard."""
    if not is_loopback(settings.host) and not settings.sign_in:
        raise BadSetting(
            f"{settings.host} is not a loopback address, and without a sign-in everybody who reaches it could use the "
            "cluster: give --sign-in, or listen on 127.0.0.1"
        )
    if not is_loopback(settings.host) and settings.certificate is None:
        raise BadSetting("passwords would travel in clear text: give --tls-certificate and --tls-key")
    if settings.oidc_issuer is not None and not settings.oidc_client_id:
        raise BadSetting("--oidc-issuer needs --oidc-client-id, the name by which the provider knows this console")
    if (settings.certificate is None) != (settings.key is None):
        raise BadSetting("--tls-certificate and --tls-key belong together")


def default_history() -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "penstock", "console.sqlite")
