"""`partition.metadata`: the topic id a partition's directory belongs to.

A topic that is deleted and created again under the same name has another id; data must not pass from one to the other.
"""

from __future__ import annotations

import os

from penstock.io.files import FileSystem, read_file
from penstock.model.ids import Uuid, uuid_from_text, uuid_text

PARTITION_METADATA = "partition.metadata"


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode()


def read_partition_metadata(files: FileSystem, directory: str) -> Uuid | None:
    """None if the file is missing or not whole: it is written again by whoever knows the id."""
    try:
        text = read_file(files, os.path.join(directory, PARTITION_METADATA)).decode()
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line)
        return uuid_from_text(fields["topic_id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
