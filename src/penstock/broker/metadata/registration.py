"""What this broker is registered as."""

from __future__ import annotations


class Registration:
    """The epoch is the controller's: of the registration that this process has made; -1 before that."""

    __slots__ = ("broker_epoch", "broker_id")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
