"""TLS: key and trust stores, contexts that are renewed while they are used, the names in certificates, an authority.

Everything but this module needs the extra `security`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.tls import TlsSettings

if TYPE_CHECKING:
    from penstock.tls.contexts import PemStores, TlsContexts

logger = logging.getLogger("penstock.tls")


def open_contexts(settings: TlsSettings, purpose: str, *, accepts: bool = True) -> TlsContexts:
    """The contexts of a listener, or of connections to other nodes; `purpose` names it, for errors.

    KafkaError(INVALID_CONFIG) if the stores cannot be used.
    """
    try:
        from penstock.tls.contexts import TlsContexts
        from penstock.tls.stores import StoreError
    except ImportError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{purpose}: TLS needs the extra `security` (pip install 'penstock[security]')"
        ) from error
    try:
        return TlsContexts(settings, accepts=accepts)
    except (StoreError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{purpose}: {error}") from None


def open_client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a client. KafkaError(INVALID_CONFIG) if the stores cannot be used."""
    with _refusals():
        from penstock.tls.contexts import client_context

        return client_context(settings)


def open_pem_stores(settings: TlsSettings) -> PemStores:
    """The stores of a client as PEM. KafkaError(INVALID_CONFIG) if they cannot be used."""
    with _refusals():
        from penstock.tls.contexts import pem_stores

        return pem_stores(settings)


@contextmanager
def _refusals() -> Iterator[None]:
    """KafkaError(INVALID_CONFIG) for stores that cannot be used, and where the extra is missing."""
    try:
        from penstock.tls.stores import StoreError
    except ImportError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, "TLS needs the extra `security` (pip install 'penstock[security]')"
        ) from error
    try:
        yield
    except (StoreError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check(contexts: TlsContexts, settings: TlsSettings, purpose: str, *, trusts_itself: bool) -> None:
    """KafkaError(INVALID_REQUEST) if the contexts could not be renewed with these settings."""
    from penstock.tls.stores import StoreError

    try:
        contexts.check(settings, trusts_itself=trusts_itself)
    except (StoreError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{purpose}: {error}") from None


def renew(contexts: TlsContexts, settings: TlsSettings, purpose: str) -> None:
    """Use changed stores or settings for new connections; if they cannot be used, say so and keep the old ones."""
    from penstock.tls.stores import StoreError

    try:
        if contexts.renew(settings):
            logger.info("%s: new certificates are in use", purpose)
    except (StoreError, ValueError) as error:
        logger.error("%s: the new certificates are not used: %s", purpose, error)
