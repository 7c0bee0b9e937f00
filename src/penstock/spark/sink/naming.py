"""The names of decisions: readable, and different where what they are made of differs."""

from __future__ import annotations

import hashlib
import re

_SINK_ID_MAX = 100


def sink_id(*names: str, checkpoint: str) -> str:
    """The name of a decision, from names of the user's and the checkpoint that numbers the batches. It has only
    characters that a transactional id allows, and differs from that of similar names.

    A batch that was decided under this name is not written again, so the name of a running query never changes."""
    digest = hashlib.sha256("\n".join([*names, checkpoint]).encode()).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", "-".join(names))
    return f"{readable[: _SINK_ID_MAX - len(digest) - 1]}-{digest}"
