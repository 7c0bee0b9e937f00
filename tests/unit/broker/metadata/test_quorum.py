from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from narrowing import expect
from penstock.broker.metadata.recovery import MetadataLost
from penstock.controller.result import Result
from penstock.io.files import read_file
from penstock.log.meta_properties import read_meta_properties
from penstock.metadata.image import MetadataImage
from penstock.metadata.snapshot import BOOTSTRAP_SNAPSHOT, QuorumConfiguration, decode_snapshot, snapshot_id
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from penstock.protocol.messages.metadata_records import AccessControlEntryRecord, FeatureLevelRecord
from penstock.raft.quorum_state import decode_quorum_state
from penstock.records.batch import iterate_headers
from penstock.records.control import parse_quorum_record
from penstock.records.record import iterate_records
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from penstock.simulator.twins.mount import ProcessKilled
from quorum_world import HOME, QuorumMachine, create_topic, creating, deleting, snapshot

LOG = f"{HOME}/__cluster_metadata-0"
Story = Callable[[QuorumMachine], Coroutine[Any, Any, None]]

# Of a new cluster, besides metadata.version and kraft.version.
LEVELS = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}


def on_a_machine(story: Story, properties: dict[str, str] | None = None, seed: int | str = 0) -> QuorumMachine:
    machines = []

    async def program(loop: SimulatedLoop) -> None:
        machines.append(QuorumMachine(loop, properties))
        await story(machines[0])

    simulate(program, seed)
    return machines[0]


def names(image: MetadataImage) -> list[str]:
    return [topic.name for topic in image.topics]


def test_a_new_node_formats_itself_as_kafka_would() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = machine.start()
        meta = read_meta_properties(machine.disk, HOME)
        assert meta is not None and machine.identity is not None
        assert (meta.cluster_id, meta.node_id) == (machine.identity.cluster_id, 1)
        assert machine.identity.directories == {HOME: meta.directory_id}
        checkpoint = decode_snapshot(read_file(machine.disk, f"{LOG}/{BOOTSTRAP_SNAPSHOT.file_name}"))
        features = [expect(FeatureLevelRecord, record) for record in checkpoint.records]
        levels = {feature.name: feature.feature_level for feature in features}
        assert levels == {"metadata.version": 33, **LEVELS}
        assert checkpoint.quorum.voters is not None and checkpoint.quorum.voters.node_ids == (1,)
        state = decode_quorum_state(read_file(machine.disk, f"{LOG}/quorum-state"))
        assert (state.epoch, state.leader_id) == (1, 1)
        data = read_file(machine.disk, f"{LOG}/00000000000000000000.log")
        (position, header), *_ = iterate_headers(data)
        assert header.is_control and header.leader_epoch == 1
        control = [parse_quorum_record(r) for r in iterate_records(data, position, header, max_size=10_000)]
        assert [type(record) for record in control] == [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]
        assert quorum.features == {**levels, "kraft.version": 1}
        assert quorum.describe().high_watermark == quorum.describe().log_end_offset == 10
        assert machine.disk.unsynced() == []

    on_a_machine(story)


def test_a_change_is_answered_and_published_once_it_is_on_disk() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        seen: list[str] = []

        def done(outcome: object) -> None:
            assert machine.disk.unsynced() == []
            seen.extend(names(quorum.image))

        quorum.submit(creating("orders"), done)
        assert names(quorum.image) == []
        assert names(quorum.controller.image) == ["orders"]
        assert seen == []
        assert await create_topic(quorum, "more") == 0
        assert seen == ["orders"]
        assert names(machine.commits[-1]) == ["orders", "more"]

    on_a_machine(story)


def test_what_is_submitted_during_a_sync_shares_the_next() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        syncs: list[str] = []
        machine.disk.before_sync = syncs.append
        answers: list[object] = []
        for number in range(20):
            quorum.submit(creating(f"topic-{number}"), answers.append)
        await create_topic(quorum, "last")
        assert len(answers) == 20
        assert len([path for path in syncs if path.endswith(".log")]) <= 2

    on_a_machine(story)


def test_an_answer_from_uncommitted_state_waits_for_it() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        order: list[str] = []
        quorum.submit(creating("orders"), lambda _: order.append("created"))
        quorum.submit(creating("orders"), lambda _: order.append("exists"))
        assert order == []
        await create_topic(quorum, "more")
        assert order == ["created", "exists"]
        # Nothing is pending now, so a refusal comes at once.
        quorum.submit(creating("orders"), lambda _: order.append("exists"))
        assert order[-1] == "exists" and len(order) == 3

    on_a_machine(story)


def test_a_refusal_of_the_whole_request_is_the_outcome() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        with pytest.raises(KafkaError) as caught:
            await quorum.call(lambda controller: controller.unfence_broker(1, 99))
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH

    on_a_machine(story)


def test_restarts_keep_everything_in_a_new_epoch() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        cluster_id = machine.identity and machine.identity.cluster_id
        for number in range(3):
            await create_topic(quorum, f"topic-{number}", partitions=2)
        before = quorum.image
        await quorum.close()
        again = machine.start()
        assert machine.identity and machine.identity.cluster_id == cluster_id
        assert again.image.same_content(before)
        assert again.epoch == 2
        await again.close()
        assert machine.start().epoch == 3

    on_a_machine(story)


def test_a_power_loss_keeps_what_was_answered() -> None:
    async def story(machine: QuorumMachine) -> None:
        chance = random.Random(5)
        answered: list[str] = []
        for start in range(12):
            quorum = await machine.start_with_broker(incarnation=start)
            assert set(answered) <= set(names(quorum.image))
            for number in range(3):
                name = f"topic-{start}-{number}"
                if await create_topic(quorum, name) == 0:
                    answered.append(name)
            quorum.submit(creating(f"never-answered-{start}"), lambda _: None)
            machine.disk.power_loss(chance)
        assert set(answered) <= set(names(machine.start().image))
        assert len(answered) == 36

    on_a_machine(story)


@pytest.mark.parametrize("operations", range(0, 60, 3))
def test_a_node_may_be_killed_at_any_point_of_its_first_start(operations: int) -> None:
    async def story(machine: QuorumMachine) -> None:
        chance = random.Random(operations)
        try:
            machine.start(operations=operations)
        except ProcessKilled:
            if operations % 2:
                machine.disk.power_loss(chance)
            else:
                machine.disk.crash()
        quorum = await machine.start_with_broker()
        assert await create_topic(quorum, "orders") == 0

    on_a_machine(story)


SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "9000",
    "internal.metadata.log.segment.bytes": "2000",
}


def test_snapshots_keep_the_log_short_and_are_what_a_start_begins_with() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        for number in range(100):
            await create_topic(quorum, f"topic-{number}")
            if number % 4:
                await quorum.call(deleting(f"topic-{number}"))
        await asyncio.sleep(1)
        files = machine.disk.list(LOG)
        snapshots = [found for name in files if (found := snapshot_id(name)) is not None]
        assert 1 <= len(snapshots) <= 4
        assert min(snapshots).offset > 100
        assert sum(machine.disk.size(f"{LOG}/{name}") for name in files) < 20_000
        assert not [name for name in files if name.endswith((".part", ".deleted"))]
        before = quorum.image
        await quorum.close()
        again = machine.start()
        assert again.image.same_content(before)
        assert len(again.image.topics) == 25
        assert again.describe().log_end_offset > max(snapshots).offset

    on_a_machine(story, SMALL)


def test_a_snapshot_is_due_after_a_while_even_if_little_happened() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        machine.clock.jump(60_001)
        await create_topic(quorum, "orders")
        await asyncio.sleep(1)
        found = [snapshot_id(name) for name in machine.disk.list(LOG)]
        assert len([snapshot for snapshot in found if snapshot is not None]) == 2

    on_a_machine(story, {"metadata.log.max.snapshot.interval.ms": "60000"})


def test_a_snapshot_waits_until_the_log_is_synced_that_far() -> None:
    """A restart does not check the log below the newest snapshot."""

    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        quorum.submit(creating("orders"), lambda _: None)
        image = quorum.controller.image
        # Other voters may have committed it before this one has synced it.
        quorum.snapshots.write(image, QuorumConfiguration(0, None), lambda: 0)
        assert not quorum.snapshots.under_way
        await asyncio.sleep(1)
        written = [found.offset for name in machine.disk.list(LOG) if (found := snapshot_id(name)) is not None]
        assert max(written) == image.offset + 1

    on_a_machine(story)


def test_a_damaged_snapshot_is_passed_over_while_the_log_still_has_it_all() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        await create_topic(quorum, "orders")
        newest, _ = await snapshot(quorum)
        await create_topic(quorum, "more")
        before = quorum.image
        await quorum.close()
        machine.disk.corrupt(f"{LOG}/{newest.file_name}", 100)
        again = machine.start()
        assert again.image.same_content(before)

    on_a_machine(story)


def test_a_snapshot_that_cannot_be_written_is_no_reason_to_stop() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        machine.disk.fail("create", "*.part", error=errno.EIO)
        with pytest.raises(OSError):
            await snapshot(quorum)
        assert await create_topic(quorum, "orders") == 0
        machine.disk.heal()
        await snapshot(quorum)
        assert machine.fatal == []

    on_a_machine(story)


def test_a_sync_that_fails_stops_the_node() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        machine.disk.fail("sync", "*.log", error=errno.EIO)
        answers: list[object] = []
        quorum.submit(creating("orders"), answers.append)
        await asyncio.sleep(1)
        (answer,) = answers
        assert isinstance(answer, KafkaError) and answer.code is ErrorCode.NOT_CONTROLLER
        assert len(machine.fatal) == 1
        assert names(quorum.image) == []
        with pytest.raises(KafkaError) as caught:
            await create_topic(quorum, "more")
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        await quorum.close()

    on_a_machine(story)


def test_a_write_that_fails_stops_the_node() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        machine.disk.fail("write", "*.log", error=errno.EIO)
        answers: list[object] = []
        quorum.submit(creating("orders"), answers.append)
        (answer,) = answers
        assert isinstance(answer, KafkaError) and answer.code is ErrorCode.NOT_CONTROLLER
        assert len(machine.fatal) == 1
        machine.disk.crash()
        machine.disk.heal()
        assert names(machine.start().image) == []

    on_a_machine(story)


def test_a_full_disk_refuses_changes_until_there_is_room() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        machine.disk.fill()
        with pytest.raises(KafkaError) as caught:
            await create_topic(quorum, "orders")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert names(quorum.controller.image) == []
        machine.disk.heal()
        assert await create_topic(quorum, "orders") == 0
        before = quorum.image
        machine.disk.power_loss(random.Random(1))
        assert machine.start().image.same_content(before)
        assert machine.fatal == []

    on_a_machine(story)


def test_a_change_that_cannot_be_stored_changes_nothing() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        assert await create_topic(quorum, "orders") == 0
        unstorable = AccessControlEntryRecord(id=b"i" * 16, resource_name="t", principal="x" * 40_000, host="*")
        with pytest.raises(KafkaError) as caught:
            await quorum.call(lambda controller: Result([unstorable], None))
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await create_topic(quorum, "more") == 0
        assert quorum.controller.image.same_content(quorum.image)
        before = quorum.image
        machine.disk.power_loss(random.Random(1))
        assert machine.start().image.same_content(before)
        assert machine.fatal == []

    on_a_machine(story)


def test_metadata_that_cannot_be_read_back_stops_the_start() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        for number in range(60):
            await create_topic(quorum, f"topic-{number}")
        await asyncio.sleep(1)
        await quorum.close()
        for name in machine.disk.list(LOG):
            if snapshot_id(name) is not None:
                machine.disk.corrupt(f"{LOG}/{name}", 70)
        with pytest.raises(MetadataLost):
            machine.start()

    on_a_machine(story, SMALL)


@pytest.mark.parametrize("position", [150, 400, 2000])
def test_damage_in_what_was_committed_is_not_taken_for_a_torn_tail(position: int) -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = await machine.start_with_broker()
        for number in range(20):
            await create_topic(quorum, f"topic-{number}")
        await quorum.close()
        quorum = machine.start()
        await create_topic(quorum, "last")
        await quorum.close()
        path = f"{LOG}/00000000000000000000.log"
        before = read_file(machine.disk, path)
        machine.disk.corrupt(path, position)
        with pytest.raises(MetadataLost, match="was written and synced up to offset"):
            machine.start()
        machine.disk.corrupt(path, position)
        assert read_file(machine.disk, path) == before
        assert len(machine.start().image.topics) == 21

    on_a_machine(story)


def test_a_start_that_cannot_be_says_why_in_one_line() -> None:
    async def story(machine: QuorumMachine) -> None:
        await machine.start().close()
        others = {"controller.quorum.voters": "1@a:1,2@b:1", "controller.listener.names": "CONTROLLER"}
        properties = {**machine.settings.properties, **others, "listeners": "PLAINTEXT://:1,CONTROLLER://:2"}
        machine.disk.remove(f"{LOG}/quorum-state")
        machine.disk.corrupt(f"{HOME}/meta.properties", 12)
        with pytest.raises(KafkaError, match=r"meta\.properties"):
            machine.start()
        machine.disk.remove_tree(HOME)
        machine.settings = type(machine.settings).from_properties(properties)
        machine.settings = type(machine.settings).from_properties({**properties, "controller.quorum.voters": "1@a:1"})
        await machine.start().close()
        machine.disk.corrupt(f"{LOG}/quorum-state", 0, 0xFF)
        with pytest.raises(MetadataLost, match="quorum-state cannot be read"):
            machine.start()

    on_a_machine(story)


def test_directories_of_others_are_refused() -> None:
    async def story(machine: QuorumMachine) -> None:
        await machine.start().close()
        machine.settings = type(machine.settings).from_properties({**machine.settings.properties, "node.id": "2"})
        with pytest.raises(KafkaError, match="belongs to node 1, and this is node 2"):
            machine.start()

    on_a_machine(story)


def test_a_directory_is_added_but_the_metadata_is_not_replaced() -> None:
    async def story(machine: QuorumMachine) -> None:
        await machine.start().close()
        first = machine.identity
        properties = {**machine.settings.properties, "log.dirs": f"{HOME},/other"}
        machine.settings = type(machine.settings).from_properties(properties)
        await machine.start().close()
        assert first is not None and machine.identity is not None
        assert machine.identity.cluster_id == first.cluster_id
        assert set(machine.identity.directories) == {HOME, "/other"}
        machine.disk.remove_tree(HOME)
        with pytest.raises(KafkaError, match="holds the metadata log and is empty"):
            machine.start()

    on_a_machine(story)


def test_fixed_voters_are_a_quorum_of_version_zero() -> None:
    async def story(machine: QuorumMachine) -> None:
        quorum = machine.start()
        assert quorum.features == {"metadata.version": 33, **LEVELS}
        state = read_file(machine.disk, f"{LOG}/quorum-state")
        assert b'"currentVoters":[{"voterId":1}],"data_version":0' in state
        await quorum.close()
        assert machine.start().epoch == 2

    on_a_machine(
        story,
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
        },
    )
