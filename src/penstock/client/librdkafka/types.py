"""Type aliases shared by the signatures of producers and consumers: keys, values, times."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Timestamp = int | datetime.datetime


def milliseconds(timestamp: Timestamp) -> int:
    if isinstance(timestamp, datetime.datetime):
        return round(timestamp.timestamp() * 1000)
    return timestamp
