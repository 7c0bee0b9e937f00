"""The name of a share partition."""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.model.ids import Uuid, uuid_from_text, uuid_text

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        """The key that FindCoordinator takes, and whose hash is the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Parse from the right, because a group id may contain colons; ValueError if the text is no key."""
        group_id, _, rest = text.rpartition(":")
        group_id, _, topic_id = group_id.rpartition(":")
        if not group_id.strip():
            raise ValueError(f"{text!r} is not group:topic id:partition")
        if not _INTEGER.fullmatch(rest):
            raise ValueError(f"{rest!r} is not a partition")
        return cls(group_id, uuid_from_text(topic_id), int(rest))
