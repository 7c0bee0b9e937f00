"""What passes by itself while brokers and controllers die, restart and elect, and how long it is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.client.errors import TimedOut, Unreachable
from penstock.client.wire.cluster import MOVING
from penstock.model.errors import ErrorCode, KafkaError

T = TypeVar("T")

POLL_S: Final = 0.5
# How long a command goes on without an answer of the cluster.
PATIENCE_S: Final = 60.0
# A topic that is deleted is not there when the cluster is observed again.
DELETED: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
# A change is answered with REQUEST_TIMED_OUT while another one is under way, or while voters are away.
PASSING: Final = MOVING | DELETED | {ErrorCode.REQUEST_TIMED_OUT}


def may_pass(error: Exception) -> bool:
    return not isinstance(error, KafkaError) or error.code in PASSING


def patiently(
    attempt: Callable[[], T], *, patience_s: float = PATIENCE_S, pause: Callable[[float], None] = time.sleep
) -> T:
    """Its result; repeated while brokers or the leader are away, for some time."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return attempt()
        except (Unreachable, TimedOut, KafkaError) as error:
            if not may_pass(error) or time.monotonic() > deadline:
                raise
        pause(POLL_S)
