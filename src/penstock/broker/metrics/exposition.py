"""Formats families and samples in Prometheus' text format, version 0.0.4.

A collector yields `(family, samples)`; a sample is the label values, in the family's order, and a number. The samples
of a histogram come from `Latency`, whose buckets are written with their sum and count. If thousands of samples have the
same labels in several families, the collector formats the labels once (`labels_text`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.broker.metrics.families import Family
from penstock.broker.net.latency import Latency

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]
Sample = tuple[Labels | str, float] | tuple[Labels, Latency]
Collected = tuple[Family, Iterable[Sample]]


def lines_of(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    """Yields one line at a time: the caller may pause between any two."""
    yield f"# HELP {family.name} {_escape_help(family.help)}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in samples:
        if isinstance(value, Latency):
            assert not isinstance(labels, str)
            yield _histogram(family, labels, value)
        else:
            text = labels if isinstance(labels, str) else labels_text(family.labels, labels)
            yield f"{family.name}{text} {_number(value)}\n"


def _histogram(family: Family, labels: Labels, latency: Latency) -> str:
    names = (*family.labels, "le")
    total = latency.requests
    lines = [
        f"{family.name}_bucket{labels_text(names, (*labels, repr(bound)))} {count}\n"
        for bound, count in latency.buckets()
    ]
    plain = labels_text(family.labels, labels)
    lines.append(f"{family.name}_bucket{labels_text(names, (*labels, '+Inf'))} {total}\n")
    lines.append(f"{family.name}_sum{plain} {latency.total_ns / 1e9!r}\n")
    lines.append(f"{family.name}_count{plain} {total}\n")
    return "".join(lines)


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)
