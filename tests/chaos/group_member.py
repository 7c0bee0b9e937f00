"""A program in a consumer group: reads, tells what it read, commits it, and tells that."""

from __future__ import annotations

import time

from chaos import foreign_members
from chaos.programs import Reports, settings
from clients.group_members import KINDS, Refused, Timing

COMMIT_S = 0.2


def main() -> None:
    given = settings()
    reports = Reports()
    kinds = KINDS | foreign_members.KINDS
    login = {"login": given["login"]} if given["login"] else {}
    member = kinds[given["kind"]](
        given["bootstrap"], given["group"], given["topic"], Timing(**given["timing"]), **login
    )
    committed_at = 0.0
    is_behind = False
    while not reports.is_to_leave:
        found = member.poll()
        for each in member.given:
            reports.tell(event="given", generation=each.generation, partitions=sorted(each.partitions))
        member.given.clear()
        if found:
            offsets: dict[int, list[int]] = {}
            for read in found:
                offsets.setdefault(read.partition, []).append(read.offset)
            reports.tell(event="read", offsets={partition: _runs(some) for partition, some in offsets.items()})
            is_behind = True
        if is_behind and time.monotonic() > committed_at + COMMIT_S:
            try:
                reports.tell(event="committed", offsets=member.commit())
                is_behind = False
            except Refused as refused:
                reports.tell(event="refused", reason=str(refused))
            committed_at = time.monotonic()
    try:
        reports.tell(event="committed", offsets=member.commit())
    except Refused as refused:
        reports.tell(event="refused", reason=str(refused))
    member.leave()


def _runs(offsets: list[int]) -> list[tuple[int, int]]:
    """As (first, last), each without a hole."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


if __name__ == "__main__":
    main()
