"""Lag and rates over time, and events, in a small SQLite file: no other database is needed. No content of records is in
it.

Each number is added to three rows, one for each resolution: 10 s for six hours, 1 min for three days, 10 min for thirty
days. A row has the sum, the count and the peak of its interval, so that a mean and a maximum can be shown. Older rows
are deleted as time passes, and the number of series is bounded: so is the file.

Events are kept for each user who signed in, because each sees other topics: the last thousand, for thirty days.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence

from penstock.console.views.charts import Point
from penstock.console.views.events import Event, Happening

RESOLUTIONS_S = ((10, 6 * 3600), (60, 3 * 86400), (600, 30 * 86400))
"""The length of an interval, and how long its rows are kept."""
SERIES_MAX = 20_000
EVENTS_MAX = 1_000
"""Of each user of a cluster."""
EVENTS_KEPT_S = 30 * 86400
_EVENT_TEXT_MAX = 2_000
_TRIM_EVERY = 300

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    UNIQUE (cluster, kind, name));
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL, resolution INTEGER NOT NULL, at INTEGER NOT NULL,
    total REAL NOT NULL, count INTEGER NOT NULL, peak REAL NOT NULL,
    PRIMARY KEY (series, resolution, at)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS points_by_age ON points (resolution, at);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, user TEXT NOT NULL, at INTEGER NOT NULL,
    kind TEXT NOT NULL, severity TEXT NOT NULL, text TEXT NOT NULL, topic TEXT NOT NULL, group_id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_of ON events (cluster, user, id);
"""
_ADD = """
INSERT INTO points VALUES (?, ?, ?, ?, 1, ?)
ON CONFLICT DO UPDATE SET total = total + excluded.total, count = count + 1, peak = max(peak, excluded.peak)
"""

Names = Mapping[tuple[str, str], float]
"""Values by kind and name: ("lag", "billing")."""


class History:
    """Used by several threads, one at a time."""

    def __init__(self, path: str) -> None:
        if path != ":memory:":
            os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")  # samples of the last seconds may be lost with the machine
        self._database.executescript(_SCHEMA)
        self._ids: dict[tuple[str, str, str], int] = {
            (cluster, kind, name): number
            for number, cluster, kind, name in self._database.execute("SELECT id, cluster, kind, name FROM series")
        }
        self._writes = 0

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def add(self, cluster: str, at_ms: int, values: Names) -> int:
        """Returns how many values were left out, because there are too many series."""
        left_out = 0
        rows = []
        with self._lock, self._database:
            for (kind, name), value in values.items():
                series = self._series(cluster, kind, name)
                if series is None:
                    left_out += 1
                    continue
                for length, _ in RESOLUTIONS_S:
                    rows.append((series, length, at_ms // 1000 // length * length, value, value))
            self._database.executemany(_ADD, rows)
            self._writes += 1
            if self._writes % _TRIM_EVERY == 1:
                self._trim(at_ms // 1000)
        return left_out

    def read(self, cluster: str, kind: str, name: str, begin_ms: int, *, peak: bool = False) -> list[Point]:
        """The points from a time on, in the finest resolution that reaches back so far."""
        found = self.read_many(cluster, kind, [name], begin_ms, peak=peak)
        return found.get(name, [])

    def read_many(
        self, cluster: str, kind: str, names: Sequence[str], begin_ms: int, *, peak: bool = False
    ) -> dict[str, list[Point]]:
        with self._lock:
            newest = self._database.execute("SELECT max(at) FROM points").fetchone()[0] or 0
            span = newest - begin_ms // 1000
            length = next((length for length, kept in RESOLUTIONS_S if span <= kept), RESOLUTIONS_S[-1][0])
            found = {}
            for name in names:
                series = self._ids.get((cluster, kind, name))
                if series is not None:
                    rows = self._database.execute(
                        "SELECT at, total, count, peak FROM points WHERE series = ? AND resolution = ? AND at >= ? "
                        "ORDER BY at",
                        (series, length, begin_ms // 1000 - length),
                    )
                    found[name] = [(at * 1000.0, most if peak else total / times) for at, total, times, most in rows]
            return found

    def add_events(self, cluster: str, user: str | None, at_ms: int, happenings: Sequence[Happening]) -> None:
        rows = [
            (cluster, user or "", at_ms, each.kind, each.severity, each.text[:_EVENT_TEXT_MAX], each.topic, each.group)
            for each in happenings
        ]
        with self._lock, self._database:
            self._database.executemany(
                "INSERT INTO events (cluster, user, at, kind, severity, text, topic, group_id) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            self._database.execute(
                "DELETE FROM events WHERE cluster = ? AND user = ? AND id <= (SELECT id FROM events WHERE cluster = ? "
                "AND user = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (cluster, user or "", cluster, user or "", EVENTS_MAX),
            )

    def events(self, cluster: str, user: str | None, limit: int) -> list[Event]:
        """The newest first."""
        with self._lock:
            rows = self._database.execute(
                "SELECT at, kind, text, severity, topic, group_id FROM events WHERE cluster = ? AND user = ? "
                "ORDER BY id DESC LIMIT ?",
                (cluster, user or "", limit),
            ).fetchall()
        return [
            Event(at, Happening(kind, text, severity, topic, group)) for at, kind, text, severity, topic, group in rows
        ]

    def rows(self) -> int:
        with self._lock:
            return int(self._database.execute("SELECT count(*) FROM points").fetchone()[0])

    def _series(self, cluster: str, kind: str, name: str) -> int | None:
        known = self._ids.get((cluster, kind, name))
        if known is not None or len(self._ids) >= SERIES_MAX:
            return known
        self._database.execute(
            "INSERT OR IGNORE INTO series (cluster, kind, name) VALUES (?, ?, ?)", (cluster, kind, name)
        )
        (number,) = self._database.execute(
            "SELECT id FROM series WHERE cluster = ? AND kind = ? AND name = ?", (cluster, kind, name)
        ).fetchone()
        self._ids[cluster, kind, name] = number
        return int(number)

    def _trim(self, now_s: int) -> None:
        for length, kept in RESOLUTIONS_S:
            self._database.execute("DELETE FROM points WHERE resolution = ? AND at < ?", (length, now_s - kept))
        self._database.execute("DELETE FROM events WHERE at < ?", ((now_s - EVENTS_KEPT_S) * 1000,))
        self._database.execute("DELETE FROM series WHERE id NOT IN (SELECT DISTINCT series FROM points)")
        kept_ids = {row[0] for row in self._database.execute("SELECT id FROM series")}
        self._ids = {key: number for key, number in self._ids.items() if number in kept_ids}
