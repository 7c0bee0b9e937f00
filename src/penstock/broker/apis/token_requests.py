"""What the APIs of delegation tokens have in common: who may use them."""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.security.principal import ANONYMOUS


def may_use_tokens(request: Request) -> bool:
    """Whether the client is authenticated, and by something better than a token."""
    return request.principal != ANONYMOUS and not request.is_token_authenticated
