"""Text from records made safe to look at: every character that could hide or reorder others is made visible.

Escaping protects the page; this protects the reader. A key that ends in a right-to-left override, or contains the
escape sequences of a terminal, is shown as what it is.
"""

from __future__ import annotations

import re

# Controls except tab and newline; marks that change the direction of text or have no width; the byte order mark.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def visible(text: str) -> str:
    return _HIDDEN.sub(_shown, text)


def one_line(text: str, length_max: int) -> str:
    """The beginning of a text, in one line."""
    cut = visible(text[: length_max + 1]).replace("\n", "⏎").replace("\t", " ")
    return cut if len(text) <= length_max else f"{cut[:length_max]}…"


def hex_dump(data: bytes, length_max: int) -> str:
    """Offset, sixteen bytes, and what they are in ASCII."""
    lines = []
    for start in range(0, min(len(data), length_max), 16):
        row = data[start : min(start + 16, length_max)]
        digits = " ".join(f"{byte:02x}" for byte in row)
        printed = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{start:08x}  {digits:<47}  {printed}")
    return "\n".join(lines)


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
