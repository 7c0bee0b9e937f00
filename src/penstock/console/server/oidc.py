"""Sign-in at an OpenID provider, for a browser's session."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from importlib.util import find_spec

from penstock.client.errors import BadSetting
from penstock.console.observe.oidc import OpenIdProvider
from penstock.console.server.sessions import Session
from penstock.console.settings import ConsoleSettings
from penstock.console.views import oidc
from penstock.console.views.oidc import Client, Identity


def open_provider(settings: ConsoleSettings) -> OpenIdProvider | None:
    """None if people sign in otherwise. BadSetting if it cannot work."""
    if settings.oidc_issuer is None:
        return None
    if find_spec("joserfc") is None:
        raise BadSetting("--oidc-issuer needs the extra `security` (pip install 'penstock[security]')")
    if not oidc.is_safe(settings.oidc_issuer):
        raise BadSetting(f"--oidc-issuer {settings.oidc_issuer}: an https address is needed")
    secret = None
    if settings.oidc_secret_file is not None:
        try:
            with open(settings.oidc_secret_file, encoding="utf-8") as file:
                secret = file.read(65536).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"--oidc-secret-file {settings.oidc_secret_file}: {error}") from error
    return OpenIdProvider(Client(settings.oidc_issuer, settings.oidc_client_id, settings.oidc_scope, secret))


def go(provider: OpenIdProvider, session: Session, returns_to: str) -> str:
    """The address at the provider; blocks while it is asked for."""
    found = provider.provider()
    session.pending = oidc.begin(lambda: secrets.token_urlsafe(32), time.monotonic(), returns_to)
    return oidc.authorization_address(found, provider.client, session.pending)


def come_back(provider: OpenIdProvider, session: Session, given: Mapping[str, str]) -> Identity:
    """SignInFailed unless the provider says who it is. What was begun counts once, however it ends."""
    pending, session.pending = session.pending, None
    code = oidc.returned(pending, given, time.monotonic())
    assert pending is not None
    return provider.identify(pending, code)
