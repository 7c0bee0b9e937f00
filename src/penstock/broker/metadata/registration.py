"""The id and the epoch under which this broker is registered."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Registration:
    """`broker_epoch` comes from the controller, for the registration of this process; -1 before that."""

    broker_id: int
    broker_epoch: int = field(default=-1, init=False)
