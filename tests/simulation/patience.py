"""Questions to coordinators, which may have to be loaded first or be busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.protocol.declaration import Message
from penstock.simulator.client import Client
from waiting import wait_until_async

NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def _error_of(answer: Any) -> int:
    """FindCoordinator has an error for each key; the others that are asked here have one."""
    coordinators = getattr(answer, "coordinators", None)
    found: int = coordinators[0].error_code if coordinators else answer.error_code
    return found


async def patiently(
    client: Client, question: Message, version: int | None = None, error_of: Callable[[Any], int] = _error_of
) -> Any:
    """The answer, once the coordinator is ready and done with what went before."""

    async def answer() -> Any:
        found = await client.ask(question, version)
        return None if error_of(found) in NOT_YET else found

    return await wait_until_async(answer, f"an answer to {question}")
