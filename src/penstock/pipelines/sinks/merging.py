"""SQL statements of a merge from a staging table, as text: they insert new rows and replace existing ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PARTITION, ATTEMPT, ROW, REASON = "__partition", "__attempt", "__row", "__reason"
"""Columns of a staging table besides those of the rows: the task that wrote a row, its place in it, why it was
refused."""


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
        last = ""
        if self.key:
            keys = ", ".join(f"r.{quoted(name)}" for name in self.key)
            last = f"ORDER BY {keys}, r.{PARTITION} DESC, r.{ROW} DESC"
        distinct = f"DISTINCT ON ({', '.join(f'r.{quoted(name)}' for name in self.key)}) " if self.key else ""
        rows = f"SELECT {distinct}r.* FROM {self.stage} r WHERE {self._counts} {last}"
        return (
            f"INSERT INTO {self.table} ({listed(self.columns)}) SELECT {self._values} FROM ({rows}) r {self._conflict}"
        )

    @property
    def row_by_row(self) -> str:
        """The same result, slowly; refused rows get a reason."""
        return f"""DO $$
            DECLARE r record;
            BEGIN
                FOR r IN SELECT * FROM {self.stage} WHERE {self._counts} ORDER BY {PARTITION}, {ROW} LOOP
                    BEGIN
                        INSERT INTO {self.table} ({listed(self.columns)}) VALUES ({self._values}) {self._conflict};
                    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
                        UPDATE {self.stage} s SET {REASON} = SQLERRM
                        WHERE s.{PARTITION} = r.{PARTITION} AND s.{ATTEMPT} = r.{ATTEMPT} AND s.{ROW} = r.{ROW};
                    END;
                END LOOP;
            END $$"""

    @property
    def _counts(self) -> str:
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
