"""A replica of one partition in a simulated story: the pure state machines of replication, over a list as the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.metadata.partition import Partition
from penstock.model.errors import ErrorCode, KafkaError
from penstock.replication.epochs import UNDEFINED_OFFSET, LeaderEpochs
from penstock.replication.follower import FollowerState
from penstock.replication.partition import LeaderState, Proposal
from penstock.simulator.stories.controller_world import directory

if TYPE_CHECKING:
    from penstock.simulator.stories.replication_story import PartitionStory

LAG_MAX_MS = 1000


class Entry(NamedTuple):
    epoch: int
    value: int


class News(NamedTuple):
    """The metadata at one moment."""

    partition: Partition
    registered: dict[int, int]  # epochs of the brokers that may be in sync


class Fetch(NamedTuple):
    follower: int
    incarnation: int
    broker_epoch: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int


class Answer(NamedTuple):
    fetch: Fetch
    code: ErrorCode
    entries: tuple[Entry, ...] = ()
    high_watermark: int = -1
    diverging: tuple[int, int] | None = None


class Replica:
    """A broker with its log; `leader` or `follower` while it is up."""

    leader_type = LeaderState
    follower_type = FollowerState

    def __init__(self, story: PartitionStory, broker_id: int) -> None:
        self.story = story
        self.id = broker_id
        self.incarnation = 0
        self.disk = 0
        self.is_up = False
        self.stopped_cleanly = True
        self.is_damaged = False  # it lost records that it had acknowledged, and has not caught up again
        self.broker_epoch = -1
        self.log: list[Entry] = []
        self.synced = 0
        self.epochs = LeaderEpochs()
        self.kept_high_watermark = 0
        self.seen = -1  # how much of the metadata it has received
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.has_fetch_in_flight = False

    # -- the log ----------------------------------------------------------------------------------------------------

    def append(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.epoch != self.epochs.latest:
                self.epochs.assign(entry.epoch, len(self.log))
            self.log.append(entry)
            self.story.check_appended(self)

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.synced = min(self.synced, offset)
        self.epochs.truncate_from_end(offset)

    def flush(self) -> None:
        self.synced = len(self.log)

    # -- starts and stops -------------------------------------------------------------------------------------------

    def start(self, *, clean: bool) -> None:
        self.incarnation += 1
        self.is_up = True
        story = self.story
        self.broker_epoch = story.world.register(self.id, incarnation=self.incarnation, clean=clean, disk=self.disk)
        self.report_directory()
        story.announce()
        self.epochs = LeaderEpochs()
        for offset, entry in enumerate(self.log):
            if entry.epoch != self.epochs.latest:
                self.epochs.assign(entry.epoch, offset)
        high_watermark = min(self.kept_high_watermark, len(self.log))
        self.follower = self.follower_type(leader_id=-1, leader_epoch=-1, high_watermark=high_watermark)
        self.leader = None
        self.has_fetch_in_flight = False
        self.seen = len(story.news) - 1
        self.take_part()

    def report_directory(self) -> None:
        """Before it is unfenced: on a disk that was replaced, the replica is new."""
        world = self.story.world
        here = directory(self.id, self.disk)
        for topic in world.image.topics:
            if world.partition(topic.name).directory_of(self.id) != here:
                world.do(world.controller.assign_replicas_to_dirs(world.located(self.id, topic.name, here)))

    def end(self) -> None:
        self.kept_high_watermark = self.story.chance.randint(0, self.high_watermark)
        self.is_up = False
        if self.leader is not None:
            for waiter in self.leader.take_all():
                waiter(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.leader = self.follower = None

    @property
    def high_watermark(self) -> int:
        state = self.leader or self.follower
        return state.high_watermark if state is not None else 0

    def registered(self, broker_id: int) -> int | None:
        return self.story.news[self.seen].registered.get(broker_id)

    def take_part(self) -> None:
        """Act on the metadata, as far as it is known here."""
        partition = self.story.news[self.seen].partition
        now_ms = self.story.now_ms
        if partition.leader == self.id:
            if self.leader is not None and self.leader.leader_epoch == partition.leader_epoch:
                self.leader.update(
                    partition_epoch=partition.partition_epoch,
                    replicas=partition.replicas,
                    isr=partition.isr,
                    now_ms=now_ms,
                )
                self.answer_waiting()
                return
            former = self.leader
            self.story.events["elected again" if former else "elections"] += 1
            self.epochs.assign(partition.leader_epoch, len(self.log))
            self.leader = self.leader_type(
                broker_id=self.id,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                log_end=len(self.log),
                flushed=self.synced,
                counts_flushed=self.story.flushes,
                high_watermark=self.high_watermark,
                min_insync_replicas=self.story.min_isr,
                lag_max_ms=LAG_MAX_MS,
                registered=self.registered,
                now_ms=now_ms,
            )
            if former is not None:
                self.leader.succeed(former)
            self.follower = None
            self.answer_waiting()
        elif self.leader is not None or self.follows_another(partition):
            self.begin_to_follow(partition)

    def follows_another(self, partition: Partition) -> bool:
        follower = self.follower
        assert follower is not None
        return (follower.leader_id, follower.leader_epoch) != (partition.leader, partition.leader_epoch)

    def begin_to_follow(self, partition: Partition) -> None:
        high_watermark = self.high_watermark
        if self.leader is not None:
            for waiter in self.leader.take_all():
                waiter(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.leader = None
        self.follower = self.follower_type(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch, high_watermark=high_watermark
        )

    def answer_waiting(self) -> None:
        assert self.leader is not None
        for waiter in self.leader.take_satisfied():
            waiter(ErrorCode.NONE)
        for waiter in self.leader.take_unsafe():
            waiter(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    # -- leading ----------------------------------------------------------------------------------------------------

    def produce(self, value: int, acknowledge: Callable[[], None]) -> None:
        leader = self.leader
        assert leader is not None
        if not leader.has_enough_replicas:
            self.story.events["refused: not enough replicas"] += 1
            return
        self.append([Entry(leader.leader_epoch, value)])
        self.story.events["appended"] += 1
        leader.appended(len(self.log), self.story.now_ms)

        def waiter(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                acknowledge()
            elif code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                self.story.events["unsafe"] += 1

        self.wait(len(self.log), waiter)
        self.answer_waiting()

    def wait(self, offset: int, waiter: Callable[[ErrorCode], None]) -> None:
        assert self.leader is not None
        self.leader.wait_for(offset, waiter)

    def handle_fetch(self, fetch: Fetch) -> Answer:
        leader = self.leader
        known = leader.leader_epoch if leader else self.follower.leader_epoch if self.follower else -1
        if fetch.leader_epoch != known or leader is None:
            self.story.events["epoch fenced"] += 1
            newer = fetch.leader_epoch > known
            return Answer(fetch, ErrorCode.UNKNOWN_LEADER_EPOCH if newer else ErrorCode.FENCED_LEADER_EPOCH)
        if fetch.last_epoch >= 0:
            epoch, end = self.epochs.end_offset_for(fetch.last_epoch, len(self.log))
            if end == UNDEFINED_OFFSET:
                return Answer(fetch, ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < fetch.last_epoch or end < fetch.offset:
                return Answer(fetch, ErrorCode.NONE, diverging=(epoch, end))
        if fetch.offset > len(self.log):
            return Answer(fetch, ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            leader.fetched(fetch.follower, fetch.offset, 0, fetch.broker_epoch, self.story.now_ms)
        except KafkaError as error:
            return Answer(fetch, error.code)
        self.answer_waiting()
        if (proposal := leader.expand(fetch.follower)) is not None:
            self.propose(proposal)
        count = self.story.chance.choice((1, 3, 100))
        entries = tuple(self.log[fetch.offset : fetch.offset + count])
        return Answer(fetch, ErrorCode.NONE, entries, leader.high_watermark)

    def propose(self, proposal: Proposal) -> None:
        story, incarnation = self.story, self.incarnation
        story.send(
            lambda: story.alter(self, incarnation, proposal),
            lambda: story.propose_again(self, incarnation, proposal),
        )

    # -- following --------------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        follower = self.follower
        assert follower is not None
        self.has_fetch_in_flight = True
        self.story.events["fetched"] += 1
        if self.story.flushes:
            self.flush()  # what is acknowledged is on the disk
        request = Fetch(
            self.id,
            self.incarnation,
            self.broker_epoch,
            follower.leader_id,
            follower.leader_epoch,
            len(self.log),
            self.epochs.latest,
        )
        self.story.send(lambda: self.story.deliver(request), lambda: self.lost(request))

    def lost(self, fetch: Fetch) -> None:
        if self.incarnation == fetch.incarnation:
            self.has_fetch_in_flight = False

    def handle_answer(self, answer: Answer) -> None:
        fetch = answer.fetch
        follower = self.follower
        if self.incarnation != fetch.incarnation or not self.is_up:
            return
        self.has_fetch_in_flight = False
        if follower is None or follower.leader_epoch != fetch.leader_epoch or fetch.offset != len(self.log):
            return
        if answer.code is not ErrorCode.NONE:
            return
        if answer.diverging is not None:
            cut = follower.truncation(answer.diverging, self.epochs, len(self.log))
            if cut.offset < len(self.log):
                self.story.events["truncations"] += 1
            self.cut(cut.offset)
            follower.truncated(len(self.log))
            return
        self.append(list(answer.entries))
        follower.learned(answer.high_watermark, len(self.log))
