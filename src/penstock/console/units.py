"""Numbers and times as people read them, each with its unit."""

from __future__ import annotations

from datetime import UTC, datetime

UNKNOWN = "—"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(number: float | None) -> str:
    """1,234,567."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def short(number: float | None) -> str:
    """1.23 M."""
    if number is None:
        return UNKNOWN
    for factor, letter in _SHORT:
        if abs(number) >= factor:
            return f"{number / factor:.3g} {letter}"
    return f"{number:.3g}" if number != int(number) else f"{number:.0f}"


def size(number: float | None) -> str:
    """1.5 MiB."""
    if number is None:
        return UNKNOWN
    value = float(number)
    for unit in _BYTES[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_BYTES[-1]}"


def rate(number: float | None, unit: str = "") -> str:
    return UNKNOWN if number is None else f"{short(number)}{' ' + unit if unit else ''}/s"


def size_rate(number: float | None) -> str:
    return UNKNOWN if number is None else f"{size(number)}/s"


def duration(seconds: float | None) -> str:
    """In the two largest units: 3 d 4 h, 2 min 5 s, 0.4 s."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def plural(number: int, noun: str) -> str:
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def utc(at_ms: float) -> str:
    """2026-11-17 22:46:31.250 UTC; a time that no calendar has is shown as a number."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms:.0f} ms"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"


def iso(at_ms: float) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""
