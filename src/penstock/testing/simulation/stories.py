"""All stories there are, at two depths: the pure machines alone, and the real broker code on a simulated machine."""

from __future__ import annotations

from penstock.testing import raft_cluster
from penstock.testing.simulation import (
    alarm_story,
    cluster_story,
    controller_story,
    coordinator_story,
    metadata_story,
    node_story,
    replication_story,
    suspend_story,
)
from penstock.testing.simulation.story import Story

STORIES = {
    story.name: story
    for story in (
        Story("raft", "the metadata quorum, pure", raft_cluster.EVENTS, raft_cluster.play),
        Story("controller", "the controller's decisions, pure", controller_story.EVENTS, controller_story.play),
        Story("partition", "one replicated partition, pure", replication_story.EVENTS, replication_story.play),
        Story("node", "one node and its disk, real broker code", node_story.EVENTS, node_story.play),
        Story("metadata", "controllers and brokers, real broker code", metadata_story.EVENTS, metadata_story.play),
        Story(
            "coordinators",
            "groups and transactions, real broker code",
            coordinator_story.EVENTS,
            coordinator_story.play,
        ),
        Story("alarms", "brokers that live, and a network that says otherwise", alarm_story.EVENTS, alarm_story.play),
        Story("suspends", "transactions on a machine that sleeps", suspend_story.EVENTS, suspend_story.play),
        Story("cluster", "a replicated topic, real broker code", cluster_story.EVENTS, cluster_story.play),
    )
}
