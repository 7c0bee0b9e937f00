"""The id and the epoch under which this broker is registered."""

from __future__ import annotations


class Registration:
    """`broker_epoch` comes from the controller, for the registration of this process; -1 before that."""

    __slots__ = ("broker_epoch", "broker_id")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
