"""The bytes of replicas, compared file by file while the cluster runs."""

from __future__ import annotations

import os

from penstock.testing.clusters import RunningCluster
from penstock.testing.nodes import RunningNode


def log_bytes(broker: RunningNode, topic: str, partition: int) -> bytes:
    """All segments one after the other; where they are divided is each replica's own affair."""
    directory = broker.partition_directory(topic, partition)
    found = []
    for name in sorted(os.listdir(directory)):
        if name.endswith(".log"):
            with open(os.path.join(directory, name), "rb") as segment:
                found.append(segment.read())
    return b"".join(found)


def same_bytes(cluster: RunningCluster, topic: str, partitions: int) -> bool:
    """Whether all replicas have reached the same length; then they must be equal in every byte."""
    for description in cluster.describe(topic).partitions[:partitions]:
        logs = {
            replica: log_bytes(cluster.broker(replica), topic, description.partition)
            for replica in description.replicas
        }
        if len({len(log) for log in logs.values()}) > 1:
            return False
        first = next(iter(logs.values()))
        for replica, log in logs.items():
            assert log == first, (
                f"{topic}-{description.partition}: replica {replica} differs from byte {_first_difference(log, first)}"
            )
    return True


def _first_difference(one: bytes, other: bytes) -> int:
    return next(index for index, (left, right) in enumerate(zip(one, other, strict=True)) if left != right)
