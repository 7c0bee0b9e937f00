"""All stories there are, at two depths: the pure machines alone, and the real broker code on a simulated machine."""

from __future__ import annotations

from penstock.testing import raft_cluster
from penstock.testing.simulation import (
    cluster_disks,
    controller_story,
    coordinator_story,
    metadata_story,
    node_story,
    replication_story,
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
        Story("cluster", "a replicated topic, real broker code", cluster_disks.EVENTS, cluster_disks.play),
    )
}
