"""Records whose deletion was acknowledged do not come back, whichever broker crashes at that moment."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.simulator.stories.cluster_world import Machine
from penstock.simulator.story import quietly
from penstock.simulator.twins.loop import SimulatedLoop, simulate
from replication_world import TOPIC, ReplicatedTopic

VALUES = [f"value {number}" for number in range(12)]


async def delete(topic: ReplicatedTopic, offset: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=10_000)
    async with topic.world.client(topic.leader.name) as client:
        ((answer,),) = (each.partitions for each in (await client.ask(request)).topics)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, offset)


def log_starts(machines: list[Machine]) -> list[int]:
    replicas = [machine.replicas.get(TOPIC, 0) for machine in machines]
    return [replica.log.log_start_offset for replica in replicas if replica is not None]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("who", ["leader", "followers", "all"])
def test_what_was_deleted_stays_so(who: str, seed: int) -> None:
    """Where a log begins is on the disks of all replicas that are up before the answer says so."""
    quietly()

    async def story(loop: SimulatedLoop) -> None:
        topic = await ReplicatedTopic.create(loop, configs={"flush.messages": "1"})
        for value in VALUES:
            assert await topic.produce(value) == ErrorCode.NONE
        await delete(topic, 7)
        everybody = [topic.leader, *topic.followers]
        victims = {"leader": everybody[:1], "followers": everybody[1:], "all": everybody}[who]
        for victim in victims:
            victim.power_loss()
        for victim in victims:
            victim.start()
        seen: set[int] = set()
        loop.watcher = lambda: seen.update(log_starts(everybody))
        await topic.in_sync(1, 2, 3)
        loop.watcher = None
        assert seen == {7}

    simulate(story, seed)
