"""The history of the quorum's version and voters, by offset in the log.

A record takes effect when it is appended, committed or not: the majority that commits it is already that of the new
voters. If it is truncated, the previous record takes effect again. Snapshots need the voters as of their own offset, so
older entries are kept as long as the log before them.

The bootstrap checkpoint that a node was formatted with counts as offset -1: it is not in the log yet, and the first
leader writes it there.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from penstock.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from penstock.raft.ready import ControlRecord
from penstock.raft.voters import NO_VOTERS, VoterSet

Value = TypeVar("Value")
BOOTSTRAP_OFFSET: Final = -1


class Entry(NamedTuple, Generic[Value]):
    offset: int
    value: Value


class VoterHistory:
    def __init__(self, static_voters: VoterSet = NO_VOTERS) -> None:
        """`static_voters`: the voters of `controller.quorum.voters`, which apply while the log has none."""
        self.static_voters = static_voters
        self._voters: list[Entry[VoterSet]] = []
        self._versions: list[Entry[int]] = []

    def replay(self, offset: int, record: ControlRecord) -> None:
        """Apply a control record at `offset`; for a record of a snapshot, the last offset that the snapshot
        contains."""
        if isinstance(record, VotersRecord):
            self.add_voters(offset, VoterSet.from_record(record))
        elif isinstance(record, KRaftVersionRecord):
            self.add_version(offset, record.kraft_version)

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        _add(self._voters, offset, voters)

    def add_version(self, offset: int, kraft_version: int) -> None:
        _add(self._versions, offset, kraft_version)

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1].value if self._voters else self.static_voters

    @property
    def voters_offset(self) -> int | None:
        """The offset of the voters in the log; None for static ones."""
        return self._voters[-1].offset if self._voters else None

    @property
    def voters_before(self) -> VoterSet:
        """The voters before the last change."""
        return self._voters[-2].value if len(self._voters) > 1 else NO_VOTERS

    @property
    def kraft_version(self) -> int:
        return self._versions[-1].value if self._versions else 0

    def voters_at(self, offset: int) -> VoterSet | None:
        """The voters as of the record at `offset`; None if the log had none by then."""
        entry = _at(self._voters, offset)
        return None if entry is None else entry.value

    def kraft_version_at(self, offset: int) -> int:
        entry = _at(self._versions, offset)
        return 0 if entry is None else entry.value

    def truncate_to(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        self._voters = [entry for entry in self._voters if entry.offset < end_offset]
        self._versions = [entry for entry in self._versions if entry.offset < end_offset]

    def forget_before(self, start_offset: int) -> None:
        """Drop entries before `start_offset` that are no longer needed; keep the one in effect there."""
        _forget(self._voters, start_offset)
        _forget(self._versions, start_offset)

    def reset(self, snapshot_offset: int, kraft_version: int, voters: VoterSet | None) -> None:
        """Take everything from a snapshot that ends at `snapshot_offset`."""
        self._versions = [Entry(snapshot_offset - 1, kraft_version)] if kraft_version else []
        self._voters = [] if voters is None else [Entry(snapshot_offset - 1, voters)]


def _add(entries: list[Entry[Value]], offset: int, value: Value) -> None:
    if entries and entries[-1].offset >= offset:
        raise ValueError(f"a record at {offset} after the one at {entries[-1].offset}")
    entries.append(Entry(offset, value))


def _at(entries: list[Entry[Value]], offset: int) -> Entry[Value] | None:
    return next((entry for entry in reversed(entries) if entry.offset <= offset), None)


def _forget(entries: list[Entry[Value]], start_offset: int) -> None:
    while len(entries) > 1 and entries[1].offset <= start_offset:
        del entries[0]
