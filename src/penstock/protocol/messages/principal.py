"""The principal inside an Envelope; an int16 version precedes it."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = field("0+")
    name: str = field("0+")
    token_authenticated: bool = field("0+")
