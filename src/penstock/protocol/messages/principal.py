"""The principal inside an Envelope, preceded by an int16 version."""

from __future__ import annotations

from penstock.protocol.declaration import Message, field


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = field("0+")
    name: str = field("0+")
    token_authenticated: bool = field("0+")
