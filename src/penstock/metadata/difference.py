"""The difference between two images, for code that acts on changes: a snapshot replaces an image without a delta."""

from __future__ import annotations

from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage


def delta_between(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The changes, as a delta of `before` would have them. The delta has no records, and cannot be applied."""
    delta = MetadataDelta(before)
    old, new = before.topics.ids, after.topics.ids
    delta.removed_topics = {topic_id: topic for topic_id, topic in old.items() if topic_id not in new}
    for topic_id, topic in new.items():
        known = old.get(topic_id)
        partitions = {} if known is None else known.partitions
        changed = {index for index, partition in topic.partitions.items() if partitions.get(index) != partition}
        if known is None or changed:
            delta.changed_topics[topic_id] = topic.name
            delta.changed_partitions[topic_id] = changed
    delta.changed_configs = {
        resource
        for resource in before.configs.keys() | after.configs.keys()
        if before.configs.get(resource) != after.configs.get(resource)
    }
    delta.changed_brokers = {
        broker_id
        for broker_id in before.brokers.keys() | after.brokers.keys()
        if before.brokers.get(broker_id) != after.brokers.get(broker_id)
    }
    old_acls, new_acls = before.acls.entries, after.acls.entries
    delta.removed_acls = {acl_id: acl for acl_id, acl in old_acls.items() if acl_id not in new_acls}
    delta.added_acls = {acl_id: acl for acl_id, acl in new_acls.items() if acl_id not in old_acls}
    delta.quotas_changed = before.client_quotas != after.client_quotas
    return delta
