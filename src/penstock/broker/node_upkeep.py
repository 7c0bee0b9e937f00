"""What a node does from time to time while it runs, beside the upkeep of its broker.

It closes idle connections, uses changed key and trust stores, and writes audit events to their topic. If a part of the
upkeep fails, the node fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.broker.broker_role import BrokerRole
from penstock.broker.net.listeners import Listeners
from penstock.broker.partitions.audit_topic import AuditTopic
from penstock.model.ownership import owned_by_loop

logger = logging.getLogger("penstock.node")

IDLE_CHECKS_PER_PERIOD: Final = 4
CERTIFICATES_CHECKED_EVERY_S: Final = 10.0


class UsesTls(Protocol):
    @property
    def uses_tls(self) -> bool: ...

    def renew(self) -> None:
        """Use changed key and trust stores for new connections. Blocks."""


@owned_by_loop()
class NodeUpkeep:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: Listeners,
        secured: Sequence[UsesTls],
        *,
        idle_max_ms: int,
        broker: BrokerRole | None,
        audit_topic: AuditTopic | None,
        fail: Callable[[str], None],
    ) -> None:
        """`idle_max_ms`: negative if idle connections stay open."""
        self.audit_topic = audit_topic
        self._listeners = listeners
        self._secured = [each for each in (listeners, *secured) if each.uses_tls]
        self._idle_max_ms = idle_max_ms
        self._broker = broker
        self._fail = fail
        self._certificates_may_have_changed = asyncio.Event()
        self._certificates_may_have_changed.set()  # the settings may have changed since the stores were read
        self._task = loop.create_task(self._run())

    def settings_changed(self) -> None:
        self._certificates_may_have_changed.set()

    async def finish_audit(self) -> None:
        if self.audit_topic is not None:
            await self.audit_topic.finish()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def abandon(self) -> None:
        if self.audit_topic is not None:
            self.audit_topic.forget()
        self._task.cancel()

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._broker is not None:
                    self._broker.start_upkeep(tasks)
                if self.audit_topic is not None:
                    tasks.create_task(self.audit_topic.run())
                if self._secured:
                    tasks.create_task(self._renew_certificates())
                if self._idle_max_ms >= 0:
                    tasks.create_task(self._close_idle_connections(self._idle_max_ms / 1000))
        except* Exception as errors:
            logger.exception("upkeep failed")
            self._fail(f"upkeep failed: {errors.exceptions[0]}")

    async def _renew_certificates(self) -> None:
        """Look for changed key and trust stores now and then, and after a setting has changed."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CERTIFICATES_CHECKED_EVERY_S):
                    await self._certificates_may_have_changed.wait()
            self._certificates_may_have_changed.clear()
            for each in self._secured:
                # Deriving keys from the passwords of stores takes longer than the loop may be held.
                await asyncio.to_thread(each.renew)

    async def _close_idle_connections(self, idle_max: float) -> None:
        while True:
            await asyncio.sleep(max(0.1, idle_max / IDLE_CHECKS_PER_PERIOD))
            for listener in self._listeners.all:
                listener.close_idle(idle_max)
