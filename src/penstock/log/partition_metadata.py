"""`partition.metadata`: the topic id that a partition's directory belongs to.

A topic that is deleted and created again with the same name has another id; data must not pass from one to the other.
"""

from __future__ import annotations

import os

from penstock.io.files import FileSystem, read_file
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid, uuid_from_text, uuid_text

PARTITION_METADATA = "partition.metadata"


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode()


def read_partition_metadata(files: FileSystem, directory: str) -> Uuid | None:
    """Read the id; None if the file is missing or incomplete: code that knows the id writes it again."""
    try:
        text = read_file(files, os.path.join(directory, PARTITION_METADATA)).decode()
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        return uuid_from_text(fields["topic_id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def settle_topic_id(files: FileSystem, directory: str, topic_id: Uuid | None) -> tuple[Uuid | None, bool]:
    """Return the topic id of the directory, and whether it was written just now (and is not synced).

    INCONSISTENT_TOPIC_ID if the directory belongs to another topic than `topic_id`.
    """
    found = read_partition_metadata(files, directory)
    if topic_id is None or found == topic_id:
        return found, False
    if found is not None:
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{directory} belongs to another topic of the same name")
    file = files.open(os.path.join(directory, PARTITION_METADATA), create=True)
    try:
        file.truncate(0)
        file.pwrite(encode_partition_metadata(topic_id), 0)
    finally:
        file.close()
    return topic_id, True
