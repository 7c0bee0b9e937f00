"""The list of all stories, at two levels: the pure machines alone, and the real broker code on a simulated machine."""

from __future__ import annotations

from penstock.simulator.quorum import cluster as raft_cluster
from penstock.simulator.stories import (
    acl_story,
    alarm_story,
    cluster_disks,
    cluster_story,
    controller_story,
    coordinator_story,
    metadata_story,
    node_story,
    registry_story,
    replication_story,
    secured_story,
    share_story,
    streams_story,
    suspend_story,
)
from penstock.simulator.story import Story

STORIES = {
    story.name: story
    for story in (
        Story("raft", "the metadata quorum, pure", raft_cluster.EVENTS, raft_cluster.play, raft_cluster.CRITICAL),
        Story(
            "controller",
            "the controller's decisions, pure",
            controller_story.EVENTS,
            controller_story.play,
            controller_story.CRITICAL,
        ),
        Story(
            "partition",
            "one replicated partition, pure",
            replication_story.EVENTS,
            replication_story.play,
            replication_story.CRITICAL,
        ),
        Story(
            "shares", "a share group's partition and its coordinator, pure", share_story.EVENTS, share_story.play, {}
        ),
        Story("streams", "a streams group and its members, pure", streams_story.EVENTS, streams_story.play, {}),
        Story(
            "registry",
            "nodes of the schema registry and their topic, pure",
            registry_story.EVENTS,
            registry_story.play,
            {},
        ),
        Story(
            "node", "one node and its disk, real broker code", node_story.EVENTS, node_story.play, node_story.CRITICAL
        ),
        Story(
            "metadata",
            "controllers and brokers, real broker code",
            metadata_story.EVENTS,
            metadata_story.play,
            metadata_story.CRITICAL,
        ),
        Story(
            "coordinators",
            "groups and transactions, real broker code",
            coordinator_story.EVENTS,
            coordinator_story.play,
            coordinator_story.CRITICAL,
        ),
        Story(
            "cluster",
            "a replicated topic, real broker code",
            cluster_disks.EVENTS,
            cluster_disks.play,
            cluster_story.CRITICAL,
        ),
        Story(
            "alarms", "brokers that live, and a network that says otherwise", alarm_story.EVENTS, alarm_story.play, {}
        ),
        Story("acls", "ACLs that change while they are used, real broker code", acl_story.EVENTS, acl_story.play, {}),
        Story(
            "secured",
            "a replicated topic where everybody logs in and ACLs decide, real broker code",
            secured_story.EVENTS,
            secured_story.play,
            {},
        ),
        Story("suspends", "transactions on a machine that sleeps", suspend_story.EVENTS, suspend_story.play, {}),
    )
}
