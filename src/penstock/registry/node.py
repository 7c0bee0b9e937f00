"""A node of the registry: its state in memory, kept up to date from the topic, and the writing of records while it is
the elected writer.

Three tasks run in the event loop, and hand what blocks to threads: one reads the topic and replays, one stays in the
group, one takes the writer's place when this node is elected. Requests that need parsing are decided in a thread; a
lock keeps the replay out meanwhile, so the state does not change while something looks at it.

A write holds `_order` from its decision until its own records were read back and replayed. The next decision therefore
sees it, and so does a client that asks this node after the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from penstock.client.errors import ClientError, RecordTooLarge, TimedOut, Unreachable
from penstock.client.wire.leaders import STALE
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.record import Record
from penstock.registry.core import records as schemas_records
from penstock.registry.core.candidate import Parser
from penstock.registry.core.decision import Decision
from penstock.registry.core.errors import RegistryError, too_large
from penstock.registry.core.records import SchemasRecord, UnreadableRecord
from penstock.registry.core.state import State
from penstock.registry.kafka.election import Elected, Identity, Membership, Rejoin, Removed
from penstock.registry.kafka.topic import TopicReader, ensure_topic
from penstock.registry.kafka.writer import RENEW_S, TopicWriter, WriteFailed, WriterFenced

logger = logging.getLogger("penstock.registry")

Result = TypeVar("Result")
Decide = Callable[[State, Parser], Decision]

RECORD_BYTES_MAX: Final = 1_000_000
START_S: Final = 60.0
_START_RETRY_S: Final = 0.5
_POLL_S: Final = 0.5
_RETRY_S: Final = 0.2
_FAILURES: Final = (ClientError, KafkaError, OSError)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    bootstrap: str
    topic: str = "_schemas"
    group: str = "schema-registry"
    session_s: float = 10.0
    timeout_s: float = 10.0


class NotTheWriter(Exception):
    """This node may not write (any more); another one may, or will."""


class Written(NamedTuple):
    answer: Any
    offset: int  # nodes that have read up to here know what was written


class RegistryNode:
    def __init__(self, settings: NodeSettings, identity: Identity) -> None:
        self._settings = settings
        self.identity = identity
        self.state = State()
        self.loaded = asyncio.Event()
        self._parser = Parser()
        self._deciding = asyncio.Lock()
        self._order = asyncio.Lock()
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="registry")
        self._position = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()
        self._elected = Elected(None, False)
        self._member_until = 0.0
        self._writer: TopicWriter | None = None
        self._renew_at = 0.0
        self._changed = asyncio.Event()

    # What requests use

    @property
    def is_writer(self) -> bool:
        return self._writer is not None and time.monotonic() < self._member_until

    @property
    def elsewhere(self) -> Identity | None:
        """The writer, if it is another node."""
        return None if self._elected.is_mine else self._elected.writer

    async def changed(self, seconds: float) -> None:
        """Wait until the writer may be another one, but not longer."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def examine(self, question: Callable[[State, Parser], Result]) -> Result:
        """Answer a question that parses schemas, in a thread, against a state that does not change meanwhile."""
        async with self._deciding:
            return await self._in_thread(lambda: question(self.state, self._parser))

    async def write(self, decide: Decide) -> Written:
        """Decide, write, and return when this node has read its own records; NotTheWriter if it may not write."""
        async with self._order:
            writer = self._writer
            if writer is None or not self.is_writer:
                raise NotTheWriter
            decision = await self.examine(decide)
            if not decision.records:
                return Written(decision.answer, self._position)
            _check_size(decision.records)
            if not self.is_writer:  # the process may have been stopped while it decided
                raise NotTheWriter
            try:
                offset = await self._in_thread(lambda: writer.append(decision.records))
                await self.reached(offset)
            except RecordTooLarge:
                raise too_large(RECORD_BYTES_MAX) from None
            except WriteFailed as error:
                logger.warning("a write failed: %s", error)
                self._give_up_writing()
                if isinstance(error, WriterFenced):
                    self._resign()  # another node was elected, and must not be fenced in return
                raise NotTheWriter from error
            except BaseException:
                # The records may be in the topic and are not in the state: nothing may be decided against it until
                # this node has taken the writer's place anew, which reads everything.
                self._give_up_writing()
                raise
            return Written(decision.answer, offset)

    async def reached(self, offset: int) -> None:
        """Wait until everything before an offset is replayed; 50002 if that takes too long."""
        if self._position >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._tickets), future))
        try:
            await asyncio.wait_for(future, self._settings.timeout_s)
        except TimeoutError:
            raise RegistryError(50002, "The write is not read back from the topic in time") from None

    # Tasks

    async def run(self) -> None:
        """Until cancelled. Failures of the cluster are waited out; a topic that cannot be used is an error."""
        await self._find_topic()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow())
                tasks.create_task(self._campaign())
                tasks.create_task(self._hold())
        finally:
            self._give_up_writing()
            self._threads.shutdown(wait=False)

    async def _find_topic(self) -> None:
        """Wait for a cluster that starts at the same time."""
        settings = self._settings
        deadline = time.monotonic() + START_S
        while True:
            try:
                await self._in_thread(
                    lambda: ensure_topic(settings.bootstrap, settings.topic, timeout=settings.timeout_s)
                )
                return
            except (Unreachable, TimedOut, KafkaError) as error:
                passing = not isinstance(error, KafkaError) or error.code in STALE
                if not passing or time.monotonic() > deadline:
                    raise
                logger.warning("waiting for the cluster: %s", error)
            await asyncio.sleep(_START_RETRY_S)

    async def _follow(self) -> None:
        """Read the topic and replay it."""
        settings = self._settings
        reader = await self._in_thread(
            lambda: TopicReader(settings.bootstrap, settings.topic, timeout=settings.timeout_s)
        )
        try:
            while True:
                try:
                    chunk = await self._in_thread(lambda: reader.read(_POLL_S if self.loaded.is_set() else 0.0))
                except _FAILURES as error:
                    if isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise  # the log is another one than what was replayed: only a new start reads it whole
                    logger.warning("cannot read %s: %s", settings.topic, error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                if chunk.records:
                    async with self._deciding:
                        self._replay(chunk.records)
                self._position = chunk.next_offset
                self._wake_waiting()
                if chunk.caught_up:
                    self.loaded.set()
        finally:
            reader.close()

    def _replay(self, records: list[Record]) -> None:
        for record in records:
            try:
                decoded = schemas_records.decode(record.key, record.value)
                self.state.replay(decoded)
                if decoded.value is None:
                    self._parser.forget()
            except UnreadableRecord as error:
                logger.warning("offset %d of %s is ignored: %s", record.offset, self._settings.topic, error)

    def _wake_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._position:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    async def _campaign(self) -> None:
        """Stay a member of the group, and know who is elected."""
        settings = self._settings
        membership = Membership(settings.bootstrap, settings.group, self.identity, session_s=settings.session_s)
        try:
            while True:
                try:
                    elected = await self._in_thread(lambda: membership.join(is_writer=self._writer is not None))
                    while True:
                        sent = time.monotonic()
                        await self._in_thread(membership.heartbeat)
                        self._stay(elected, sent)
                        await asyncio.sleep(settings.session_s / 3)
                except Removed:
                    self._resign()
                except Rejoin:
                    continue
                except _FAILURES as error:
                    moving = isinstance(error, KafkaError) and error.code in STALE
                    logger.log(
                        logging.DEBUG if moving else logging.WARNING, "not in the group %s: %s", settings.group, error
                    )
                    if time.monotonic() > self._member_until:
                        self._resign()
                    await asyncio.sleep(_RETRY_S)
        finally:
            # In another thread than the pool's, which may be full of requests that will not be answered.
            await asyncio.shield(asyncio.to_thread(_leave, membership))

    def _stay(self, elected: Elected, since: float) -> None:
        self._member_until = since + self._settings.session_s
        if elected == self._elected:
            return
        writer = "no node" if elected.writer is None else elected.writer.url
        logger.info("the writer is %s%s", writer, " (this node)" if elected.is_mine else "")
        self._elected = elected
        if not elected.is_mine:
            self._give_up_writing()
        self._announce()

    def _resign(self) -> None:
        """Forget the last election: only a heartbeat that succeeds, or the next election, makes it valid again."""
        self._stay(Elected(None, False), 0.0)

    async def _hold(self) -> None:
        """Take the writer's place when elected, again after a failed write, and before the epoch expires."""
        await self.loaded.wait()
        while True:
            is_due = self._writer is None or time.monotonic() > self._renew_at
            if self._elected.is_mine and is_due and time.monotonic() < self._member_until:
                try:
                    await self._take_over()
                    self._announce()
                except (*_FAILURES, WriteFailed, RegistryError) as error:
                    logger.warning("cannot become the writer: %s", error)
                    await asyncio.sleep(_RETRY_S)
                continue
            # A term that ran out unnoticed begins again with a heartbeat, which announces nothing.
            await self.changed(self._settings.session_s / 3 if self._elected.is_mine and is_due else 60.0)

    async def _take_over(self) -> None:
        """Fence the writer before, and read everything that it wrote, before anything is decided."""
        settings = self._settings
        async with self._order:
            self._give_up_writing()
            transactional_id = f"{settings.group}-{settings.topic}"
            writer = await self._in_thread(
                lambda: TopicWriter(settings.bootstrap, settings.topic, transactional_id, timeout=settings.timeout_s)
            )
            try:
                noted: dict[str, int] | None = None
                while noted != self.state.highest_ids():  # the note may miss ids that had not been read yet
                    noted = self.state.highest_ids()
                    note = schemas_records.noop(noted)
                    await self.reached(await self._in_thread(lambda: writer.append([note])))  # noqa: B023
            except BaseException:
                writer.close()
                raise
            self._writer = writer
            self._renew_at = time.monotonic() + RENEW_S

    def _give_up_writing(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._announce()

    def _announce(self) -> None:
        """Wake everybody who waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _check_size(records: tuple[SchemasRecord, ...]) -> None:
    for record in records:
        if sum(len(part or b"") for part in record.encoded()) > RECORD_BYTES_MAX:
            raise too_large(RECORD_BYTES_MAX)


def _leave(membership: Membership) -> None:
    try:
        membership.leave()
    except _FAILURES as error:
        logger.warning("could not leave the group: %s", error)
    finally:
        membership.close()
