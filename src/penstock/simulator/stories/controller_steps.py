"""The steps of the controller story: each one changes the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from penstock.controller.elections import RECOVERED, Election
from penstock.controller.heartbeats import BrokerSession
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.messages.unregister_broker import UnregisterBrokerRequest

if TYPE_CHECKING:
    from penstock.simulator.stories.controller_story import ControllerStory

BROKERS = 4
NAMES = ("a", "b", "c")

Step = Callable[["ControllerStory"], None]


def restart(broker_id: int, clean: bool, new_disk: bool, disk_fails: bool, interrupt: bool) -> Step:
    return lambda story: story.restart(
        broker_id, clean=clean, new_disk=new_disk, disk_fails=disk_fails, interrupt=interrupt
    )


def fence(broker_id: int, interrupt: bool) -> Step:
    return lambda story: story.once(
        lambda controller: controller.fence_broker(broker_id, story.epoch(broker_id)), interrupt=interrupt
    )


def found_dead(broker_id: int, interrupt: bool) -> Step:
    """Long before its session would end, so that the controller waits for it."""

    def step(story: ControllerStory) -> None:
        session = BrokerSession(broker_id, story.epoch(broker_id))
        heartbeats = story.controller.heartbeats
        if not story.image.brokers[broker_id].fenced:
            heartbeats.heartbeat(*session, story.offset, 0)
            heartbeats.contact_lost(*session)
            heartbeats.process_gone(session, 0)
            assert heartbeats.overdue(0) == [session]
            story.loaded.discard(broker_id)
            story.once(lambda controller: controller.fence_broker(*session), interrupt=interrupt)

    return step


def unfence(broker_id: int, interrupt: bool) -> Step:
    def step(story: ControllerStory) -> None:
        story.report(broker_id)
        story.once(lambda controller: controller.unfence_broker(broker_id, story.epoch(broker_id)), interrupt=interrupt)

    return step


def heartbeat(broker_id: int, want_fence: bool, want_shut_down: bool, behind: int, interrupt: bool) -> Step:
    def step(story: ControllerStory) -> None:
        story.report(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=story.epoch(broker_id),
            current_metadata_offset=story.offset - behind,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=sorted(story.disks[broker_id].failed),
        )
        story.once(lambda controller: controller.broker_heartbeat(request, 0), interrupt=interrupt)

    return step


def unregister(broker_id: int) -> Step:
    request = UnregisterBrokerRequest(broker_id=broker_id)

    def step(story: ControllerStory) -> None:
        story.disks[broker_id].doubtful = True
        story.run(lambda controller: controller.unregister_broker(request))

    return step


def some_partition(story: ControllerStory, number: int) -> tuple[str, int]:
    places = [(topic.name, partition_id) for topic in story.image.topics for partition_id in topic.partitions]
    if not places:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return places[number % len(places)]


def alter(number: int, members: frozenset[int], stale: bool, recovered: bool) -> Step:
    def step(story: ControllerStory) -> None:
        name, partition_id = some_partition(story, number)
        partition = story.partition(name, partition_id)
        topic_id = story.image.topics.id_of(name)
        assert topic_id is not None
        isr = [
            replica
            for replica in partition.replicas
            if replica == partition.leader
            or (replica in members and story.disks[replica].holds((topic_id, partition_id)))
        ]
        state = RECOVERED if recovered else partition.leader_recovery_state
        with story.proposing((topic_id, partition_id), frozenset() if stale else frozenset(isr)):
            story.alter(
                name,
                isr,
                partition_id,
                leader_recovery_state=state,
                partition_epoch=partition.partition_epoch - stale,
            )

    return step


def reassign(number: int, replicas: list[int] | None, keep: bool) -> Step:
    def step(story: ControllerStory) -> None:
        name, partition_id = some_partition(story, number)
        partition = story.partition(name, partition_id)
        topic_id = story.image.topics.id_of(name)
        assert topic_id is not None
        original = len(partition.replicas) - len(partition.adding_replicas)
        before = story.factors[topic_id, partition_id]
        story.factors[topic_id, partition_id] = {original} if replicas is None else {original, len(replicas)}
        story.unclean_asked = replicas is None and story.unclean_allowed
        result = story.reassign(name, replicas, partition_id, allow_replication_factor_change=not keep)
        story.unclean_asked = False
        if result.error_code:
            story.factors[topic_id, partition_id] = before

    return step


def elect(unclean: bool) -> Step:
    def step(story: ControllerStory) -> None:
        story.unclean_asked = unclean
        story.elect(Election.UNCLEAN if unclean else Election.PREFERRED)
        story.unclean_asked = False

    return step


def balance(story: ControllerStory) -> None:
    story.do(story.controller.balance_leaders())


def elect_unclean(story: ControllerStory) -> None:
    """When no replica is left to wait for. While there may be more to do, the controller continues at once."""
    story.controller.heartbeats.give_up_awaited(story.controller.settings.broker_session_timeout_ms)
    while story.do(story.controller.elect_unclean_leaders()):
        pass


def create(name: str, partitions: int, factor: int) -> Step:
    return lambda story: story.create(name, partitions, factor) and None


def add_partitions(name: str, count: int) -> Step:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
    return lambda story: story.do(story.controller.create_partitions(request)) and None


def delete(name: str) -> Step:
    return lambda story: story.delete(name)


def minimum(name: str | None, value: int) -> Step:
    def step(story: ControllerStory) -> None:
        if name is None:
            story.set_broker_config("", "min.insync.replicas", str(value))
        else:
            story.set_config(name, "min.insync.replicas", str(value))

    return step


def report(broker_id: int) -> Step:
    return lambda story: story.report(broker_id)


def fail_disk(broker_id: int) -> Step:
    """The broker reports it with its next heartbeat, if it lives until then."""
    return lambda story: story.fail_disk(broker_id)


def take_over(story: ControllerStory) -> None:
    """Another controller becomes active: soft state is gone."""
    story.moments.strike("failover", story)
    story.controller.reset(story.image)
    story.controller.heartbeats.activate(story.image.brokers, 0)
    story.run(lambda controller: controller.activate([]))
    story.interrupted = False
    story.events["controller failovers"] += 1


def random_step(random: Random) -> Step:
    """Brokers fail and return more often than anything else happens, because the hard cases come from that."""

    def rarely() -> bool:
        return random.random() < 0.15

    broker, number = random.randint(1, BROKERS), random.randrange(20)
    name = random.choice(NAMES)
    everybody = frozenset(range(1, BROKERS + 1))
    replicas = random.sample(range(1, BROKERS + 1), random.randint(1, 3))
    makers: list[tuple[int, Callable[[], Step]]] = [
        (8, lambda: restart(broker, random.random() < 0.5, rarely(), rarely(), rarely())),
        (5, lambda: fence(broker, rarely())),
        (4, lambda: found_dead(broker, rarely())),
        (12, lambda: unfence(broker, rarely())),
        (6, lambda: heartbeat(broker, rarely(), rarely(), random.choice((0, 0, 5)), rarely())),
        (1, lambda: unregister(broker)),
        (2, lambda: take_over),
        (6, lambda: alter(number, frozenset(random.sample(sorted(everybody), 2)), rarely(), True)),
        (10, lambda: alter(number, everybody, False, random.random() < 0.5)),
        (5, lambda: reassign(number, None if random.random() < 0.25 else replicas, rarely())),
        (3, lambda: elect(rarely())),
        (2, lambda: random.choice((balance, elect_unclean))),
        (1, lambda: create(name, random.randint(1, 4), random.randint(1, 3))),
        (1, lambda: random.choice((add_partitions(name, random.randint(1, 6)), delete(name)))),
        (2, lambda: minimum(random.choice((None, name)), random.randint(1, 3))),
        (5, lambda: report(broker)),
        (2, lambda: fail_disk(broker)),
    ]
    weights, choices = zip(*makers, strict=True)
    maker: Callable[[], Step] = random.choices(choices, weights)[0]
    return maker()
