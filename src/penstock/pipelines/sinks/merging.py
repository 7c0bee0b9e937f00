"""SQL statements of a merge from a staging table, as text: they insert new rows and replace existing ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.pipelines.spec.sink_formats import HISTORY, IS_CURRENT, VALID_FROM, VALID_TO

PARTITION, ATTEMPT, ROW, REASON = "__partition", "__attempt", "__row", "__reason"
"""Columns of a staging table besides those of the rows: the task that wrote a row, its place in it, why it was
refused."""
_VERSIONS = "penstock_versions"
_BODY = "$penstock_row_by_row$"  # a name of a column may have $$


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted_path(path: str) -> str:
    """`schema.table`, each part quoted separately."""
    return ".".join(map(quoted, path.split(".")))


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge from a staging table, whose columns are all text, into a PostgreSQL table."""

    table: str
    stage: str
    columns: Mapping[str, str]
    """The columns to write, with expressions that compute their values from the staged ones; they name rows as `r`."""
    key: Sequence[str]
    tasks: Sequence[tuple[int, int]]
    """Partitions, and the attempt of each that counts."""

    @property
    def all_at_once(self) -> str:
        """Of rows with the same key the last one wins."""
        distinct = last = ""
        if self.key:
            # As values of the table: texts that differ may be the same key there (char(4), citext).
            keys = ", ".join(self.columns.get(name, f"r.{quoted(name)}") for name in self.key)
            distinct, last = f"DISTINCT ON ({keys}) ", f"ORDER BY {keys}, r.{PARTITION} DESC, r.{ROW} DESC"
        rows = f"SELECT {distinct}r.* FROM {self.stage} r WHERE {self.counts} {last}"
        return (
            f"INSERT INTO {self.table} ({listed(self.columns)}) SELECT {self._values} FROM ({rows}) r {self._conflict}"
        )

    @property
    def row_by_row(self) -> str:
        """The same result, slowly; refused rows get a reason."""
        return f"""DO {_BODY}
            DECLARE r record;
            BEGIN
                FOR r IN SELECT * FROM {self.stage} WHERE {self.counts} ORDER BY {PARTITION}, {ROW} LOOP
                    BEGIN
                        INSERT INTO {self.table} ({listed(self.columns)}) VALUES ({self._values}) {self._conflict};
                    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
                        UPDATE {self.stage} s SET {REASON} = SQLERRM
                        WHERE s.{PARTITION} = r.{PARTITION} AND s.{ATTEMPT} = r.{ATTEMPT} AND s.{ROW} = r.{ROW};
                    END;
                END LOOP;
            END {_BODY}"""

    @property
    def counts(self) -> str:
        tasks = ", ".join(f"({partition}, {attempt})" for partition, attempt in self.tasks)
        return f"({PARTITION}, {ATTEMPT}) IN ({tasks})"

    @property
    def _values(self) -> str:
        return ", ".join(self.columns.values())

    @property
    def _conflict(self) -> str:
        if not self.key:
            return ""
        rest = [name for name in self.columns if name not in self.key]
        changes = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in rest)
        return f"ON CONFLICT ({listed(self.key)}) DO {f'UPDATE SET {changes}' if rest else 'NOTHING'}"


@dataclass(frozen=True, slots=True)
class HistoryMerge:
    """A merge that keeps earlier versions (see `histories`, which does the same in Spark)."""

    merge: Merge
    time: str
    """The column with the time of a version; empty: now."""

    @property
    def statements(self) -> tuple[str, ...]:
        """For one transaction: the versions of the keys that the batch has, then these instead of the known ones."""
        merge, key = self.merge, listed(self.merge.key)
        same = " AND ".join(f"t.{quoted(name)} = v.{quoted(name)}" for name in merge.key)
        names = listed([*merge.columns, *HISTORY])
        return (
            f"CREATE TEMPORARY TABLE {_VERSIONS} ON COMMIT DROP AS {self._versions}",
            f"DELETE FROM {merge.table} t USING (SELECT DISTINCT {key} FROM {_VERSIONS}) v WHERE {same}",
            f"INSERT INTO {merge.table} ({names}) SELECT {names} FROM {_VERSIONS}",
        )

    @property
    def _versions(self) -> str:
        merge = self.merge
        columns, key = listed(merge.columns), listed(merge.key)
        known = ", ".join(f"t.{quoted(name)}" for name in merge.columns)
        values = listed(name for name in merge.columns if name not in (*merge.key, self.time))
        staged = ", ".join(f"{value} AS {quoted(name)}" for name, value in merge.columns.items())
        now = "statement_timestamp()"
        begins = f"coalesce({merge.columns[self.time]}::timestamptz, {now})" if self.time else now
        # A clock that was set back must not put a new version before an old one.
        placed = "s.begins" if self.time else f"greatest(s.begins, max(s.known) OVER (PARTITION BY {key}))"
        return f"""
            WITH staged AS MATERIALIZED (
                SELECT {staged}, {begins} AS begins, r.{PARTITION}, r.{ROW} FROM {merge.stage} r WHERE {merge.counts}
            ), known AS (
                SELECT {known}, t.{VALID_FROM} FROM {merge.table} t
                JOIN (SELECT DISTINCT {key} FROM staged) touched USING ({key})
            ), united AS (
                SELECT {columns}, {VALID_FROM} AS begins, {VALID_FROM} AS known, 0 AS turn, 0 AS {PARTITION}, 0 AS {ROW}
                FROM known
                UNION ALL SELECT {columns}, begins, NULL, 1, {PARTITION}, {ROW} FROM staged
            ), placed AS (
                SELECT s.*, CASE turn WHEN 0 THEN s.begins ELSE {placed} END AS {VALID_FROM} FROM united s
            ), single AS (
                SELECT DISTINCT ON ({key}, {VALID_FROM}) * FROM placed
                ORDER BY {key}, {VALID_FROM}, turn DESC, {PARTITION} DESC, {ROW} DESC
            ), compared AS (
                SELECT *, to_jsonb(ROW({values})) AS document,
                    lag(to_jsonb(ROW({values}))) OVER (PARTITION BY {key} ORDER BY {VALID_FROM}) AS earlier FROM single
            )
            SELECT {columns}, {VALID_FROM},
                lead({VALID_FROM}) OVER (PARTITION BY {key} ORDER BY {VALID_FROM}) AS {VALID_TO},
                lead({VALID_FROM}) OVER (PARTITION BY {key} ORDER BY {VALID_FROM}) IS NULL AS {IS_CURRENT}
            FROM compared WHERE earlier IS DISTINCT FROM document"""
