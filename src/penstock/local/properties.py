"""The `server.properties` files of local nodes.

The file belongs to the user as much as to us: it is written on the first start, and later starts change only the lines
that must follow the command line (listeners, data directory). Settings added or changed by hand stay.
"""

from __future__ import annotations

from collections.abc import Mapping

HEADER = (
    "# A Penstock node. Settings have Kafka's names; yours are kept. The lines that depend on how the node is started\n"
    "# (node.id, process.roles, listeners, log.dirs, where the quorum is) are rewritten at each start.\n"
)


def merge_properties(text: str, ours: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> str:
    """Return `text` with our properties: existing lines are replaced in place, missing ones are appended.

    Defaults are appended too, but never replace an existing line.
    """
    missing = dict(ours)
    unset = {name: value for name, value in (defaults or {}).items() if name not in ours}
    lines: list[str] = []
    for line in (text or HEADER).splitlines():
        name = line.partition("=")[0].strip()
        unset.pop(name, None)
        if name in ours and not line.lstrip().startswith(("#", "!")):
            if name in missing:
                lines.append(f"{name}={_escape(missing.pop(name))}")
            continue
        lines.append(line)
    lines.extend(f"{name}={_escape(value)}" for name, value in {**missing, **unset}.items())
    return "\n".join(lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\")
