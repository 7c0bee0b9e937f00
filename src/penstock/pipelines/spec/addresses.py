"""Checks addresses of brokers: `host:port`, separated by commas, and perhaps a reference to settings: `@prod`."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"(?:[A-Za-z0-9_]+://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_EXAMPLE = "write host:port, such as kafka-1:9092"


def bootstrap_problem(text: str) -> tuple[str, int] | None:
    """What is wrong, and where in the text; None if nothing is."""
    text, at, _ = text.partition("@")
    if at and not text.strip():
        return None  # the addresses are where the settings are
    index = 0
    for each in text.split(","):
        address = each.strip()
        start = index + len(each) - len(each.lstrip())
        index += len(each) + 1
        found = _ADDRESS.fullmatch(address)
        if (found is not None and 0 < int(found[1]) < 65536) or (not address and text.strip(", ")):
            continue
        if found is not None:
            return f'"{address}": a port is between 1 and 65535', start
        if not address:
            return f"there is no address; {_EXAMPLE}", 0
        if ":" not in address.rpartition("]")[2].rpartition("//")[2]:
            return f'"{address}" has no port; {_EXAMPLE}', start
        return f'"{address}" is not an address of a broker; {_EXAMPLE}', start
    return None
