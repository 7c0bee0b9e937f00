"""What the pipelines of examples/ must make of events, computed without Spark and without Penstock: each event is read
by Python's own json, and DuckDB does the rest.

An event is late if it is older than the latest before it by an hour and more; streams have no event near that line, and
batches are short enough for Spark to see it in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import duckdb

from penstock.demo.events import HOUR_MS, Event

LATE_MS = HOUR_MS
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Example:
    """Columns `number`, `at` (milliseconds) and `late` come before those of a table; watermarks are as in the file."""

    tables: dict[str, str]
    """By topic: its columns in DuckDB."""
    parse: Callable[[Event], Row | None]
    """None: a dead letter."""
    outputs: dict[str, str]
    """By sink: the rows that are expected, as a query over these tables."""
    found: dict[str, tuple[str, ...]]
    """By sink: the fields to compare them with, in that order."""
    setup: str = ""
    """Views."""


@dataclass
class Expected:
    example: Example
    database: Any = field(default_factory=duckdb.connect)
    number: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Events, by topic."""
    late: dict[str, int] = field(default_factory=dict)
    """Of those that parse."""
    letters: list[tuple[str, bytes | None]] = field(default_factory=list)
    _latest: int = 0

    def __post_init__(self) -> None:
        for topic, columns in self.example.tables.items():
            self.database.execute(f'CREATE TABLE "{topic}" (number BIGINT, ms BIGINT, late BOOLEAN, {columns})')

    def add(self, events: Iterable[Event]) -> None:
        import pyarrow as pa

        rows: dict[str, list[Row]] = {}
        for event in events:
            self.counts[event.topic] = self.counts.get(event.topic, 0) + 1
            self.number += 1
            row = self.example.parse(event)
            if row is None:
                self.letters.append((event.topic, event.value))
                continue
            late = event.timestamp_ms < self._latest - LATE_MS
            self._latest = max(self._latest, event.timestamp_ms)
            self.late[event.topic] = self.late.get(event.topic, 0) + late
            rows.setdefault(event.topic, []).append((self.number, event.timestamp_ms, late, *row))
        for topic, made in rows.items():
            columns = [pa.array(column) for column in zip(*made, strict=True)]
            chunk = pa.table(columns, names=[f"c{number}" for number in range(len(columns))])
            self.database.register("chunk", chunk)
            self.database.execute(f'INSERT INTO "{topic}" FROM chunk')
            self.database.unregister("chunk")

    def finish(self) -> None:
        """Watermarks by topic, ten minutes behind the latest, and the views of the example."""
        self.database.execute("CREATE TABLE watermarks (topic VARCHAR, ms BIGINT)")
        for topic in self.example.tables:
            latest = self._number(f'SELECT max(ms) FROM "{topic}"')
            self.database.execute("INSERT INTO watermarks VALUES (?, ?)", [topic, latest - HOUR_MS // 6])
        if self.example.setup:
            self.database.execute(self.example.setup)

    def differences(self, sink: str, rows: Any) -> dict[str, list[Row]]:
        """`rows`: a pyarrow table with the columns that the example compares. Nothing: it is as it must be."""
        self.database.register("found", rows)
        self.database.execute(f"CREATE OR REPLACE TABLE expected AS {self.example.outputs[sink]}")
        columns = ", ".join(f'"{name}"' for name in self.example.found[sink])
        found = f"SELECT {columns} FROM found"
        told = {
            "missing": f"FROM expected EXCEPT ALL {found}",
            "unexpected": f"{found} EXCEPT ALL FROM expected",
        }
        different = {name: self.database.execute(f"FROM ({query}) LIMIT 5").fetchall() for name, query in told.items()}
        self.database.unregister("found")
        return {name: rows for name, rows in different.items() if rows}

    def count(self, sink: str) -> int:
        return self._number(f"SELECT count(*) FROM ({self.example.outputs[sink]})")

    def _number(self, query: str) -> int:
        ((number,),) = self.database.execute(query).fetchall()
        return int(number)


def _fields(*names: str) -> Callable[[Event], Row | None]:
    """Of JSON objects that have them all."""

    def parse(event: Event) -> Row | None:
        try:
            value = json.loads(event.value or b"")
            return tuple(value[name] for name in names)
        except (ValueError, KeyError, TypeError):
            return None

    return parse


def _log_line(event: Event) -> Row | None:
    parts = (event.value or b"").decode(errors="replace").split(" ", 3)
    return tuple(parts[1:]) if len(parts) == 4 else None


def _fleet(event: Event) -> Row | None:
    names = ("truck", "latitude", "longitude", "speed") if event.topic == "truck-locations" else ("truck", "litres")
    return _fields(*names)(event)


def _order(event: Event) -> Row | None:
    if event.topic == "orders.web":
        row = _fields("id", "customer", "amount")(event)
        return row and ("web", str(row[0]), row[1], round(row[2] * 100))
    if event.topic == "orders.stores":
        row = _fields("store", "receipt", "cents")(event)
        return row and ("store", f"{row[0]}/{row[1]}", None, row[2])
    parts = (event.value or b"").decode(errors="replace").split(";")
    if len(parts) != 3 or not parts[2].isdecimal():
        return None
    return ("partner", f"{parts[0]}/{parts[1]}", parts[0], int(parts[2]))


def _notification(event: Event) -> Row | None:
    try:
        value = json.loads(event.value or b"")
        channel = value["channel"].strip().lower()
        row = (value["id"], channel, value["recipient"], value["text"], value.get("urgent", False))
    except (ValueError, KeyError, TypeError):
        return None
    return row if channel in ("mail", "sms", "push") else None


_ORDER = "channel VARCHAR, name VARCHAR, buyer VARCHAR, cents BIGINT"
_TIME = "strftime(make_timestamp(({}) * 1000), '%Y-%m-%dT%H:%M:%S.%gZ')"
_IN_TIME = "NOT late"


def _time(expression: str) -> str:
    """Milliseconds as JSON of Spark has them."""
    return _TIME.format(expression)


def _window(minutes: int) -> str:
    return f"(ms // {minutes * 60_000}) * {minutes * 60_000}"


def _over(topic: str) -> str:
    return f"(SELECT ms FROM watermarks WHERE topic = '{topic}')"


_ACTIVITY = f"""
    SELECT "user", {_time("min(ms)")}, {_time("max(ms) + 1800000")}, count(*), bool_or(starts_with(page, '/checkout'))
    FROM (
        SELECT *, sum(new) OVER (PARTITION BY "user" ORDER BY ms, number) AS session
        FROM (
            SELECT *, coalesce(ms - lag(ms) OVER (PARTITION BY "user" ORDER BY ms, number) > 1800000, true)::INT AS new
            FROM "page-views" WHERE {_IN_TIME}
        )
    )
    GROUP BY "user", session HAVING max(ms) + 1800000 <= {_over("page-views")}
"""
_METRICS = f"""
    CREATE VIEW minutes AS
    SELECT host, metric, {_window(1)} AS minute, count(*) AS samples, min(value) AS least, max(value) AS most,
           sum(value) AS total
    FROM measurements WHERE {_IN_TIME} GROUP BY host, metric, minute HAVING minute + 60000 <= {_over("measurements")}
"""
_LOGS_WINDOW = f"{_window(5)} + 300000 <= {_over('logs')}"
_LOGS = f"""
    CREATE VIEW messages AS
    SELECT service, {_window(5)} AS since, regexp_replace(text, '[0-9]+', '#', 'g') AS message, count(*) AS times
    FROM logs WHERE {_IN_TIME} AND level = 'ERROR' GROUP BY service, since, message
    HAVING since + 300000 <= (SELECT max(ms) FROM logs WHERE level = 'ERROR') - 600000
"""
_FLEET_OVER = f"least({_over('truck-locations')}, {_over('truck-fuel')})"
_FLEET = f"""
    CREATE VIEW moved AS
    SELECT truck, {_window(10)} AS since, count(*) AS reports, avg(speed) AS speed, max(speed) AS speed_max,
           max({{ms: ms, latitude: latitude, longitude: longitude}}) AS last
    FROM "truck-locations" WHERE {_IN_TIME} GROUP BY ALL;
    CREATE VIEW used AS
    SELECT truck, {_window(10)} AS since, max({{ms: ms, litres: litres}}).litres AS litres,
           max(litres) - min(litres) AS litres_used
    FROM "truck-fuel" WHERE {_IN_TIME} GROUP BY ALL;
    CREATE VIEW trucks AS
    SELECT truck, {_time("since")} AS since, reports, speed, speed_max, last.latitude AS latitude,
           last.longitude AS longitude, litres, litres_used
    FROM moved JOIN used USING (truck, since) WHERE since + 600000 <= {_FLEET_OVER}
"""
_MESSAGE = "{times: times, message: message}"

EXAMPLES: dict[str, Example] = {
    "activity": Example(
        {"page-views": '"user" VARCHAR, page VARCHAR'},
        _fields("user", "page"),
        {"sessions": _ACTIVITY},
        {"sessions": ("user", "began", "ended", "views", "checked_out")},
    ),
    "feeds": Example(
        dict.fromkeys(("orders.web", "orders.stores", "orders.partners"), _ORDER),
        _order,
        {
            "orders": " UNION ALL ".join(
                f'SELECT DISTINCT channel, name, buyer, cents, {_time("ms")} FROM "{topic}" WHERE {_IN_TIME}'
                for topic in ("orders.web", "orders.stores", "orders.partners")
            )
        },
        {"orders": ("channel", "number", "buyer", "cents", "at")},
    ),
    "fleet": Example(
        {
            "truck-locations": "truck VARCHAR, latitude DOUBLE, longitude DOUBLE, speed BIGINT",
            "truck-fuel": "truck VARCHAR, litres DOUBLE",
        },
        _fleet,
        {
            "trucks": "SELECT * FROM trucks",
            "alerts": "SELECT truck, since, latitude, longitude, litres_used FROM trucks "
            "WHERE speed_max = 0 AND litres_used > 20",
        },
        {
            "trucks": (
                "truck", "since", "reports", "speed", "speed_max", "latitude", "longitude", "litres", "litres_used",
            ),
            "alerts": ("truck", "since", "latitude", "longitude", "litres_used"),
        },
        _FLEET,
    ),
    "lake": Example(
        {"page-views": '"user" VARCHAR, page VARCHAR'},
        _fields("user", "page"),
        {"table": 'SELECT make_timestamp(ms * 1000)::DATE, ms, "user", page FROM "page-views"'},
        {"table": ("day", "ms", "user", "page")},
    ),
    "logs": Example(
        {"logs": "level VARCHAR, service VARCHAR, text VARCHAR"},
        _log_line,
        {
            "rates": f"SELECT service, {_time(_window(5))} AS since, count(*), count_if(level = 'ERROR'), "
            f"count_if(level = 'ERROR') / count(*) FROM logs WHERE {_IN_TIME} AND {_LOGS_WINDOW} GROUP BY ALL",
            "top": f"SELECT service, {_time('since')}, list({_MESSAGE} ORDER BY times DESC, message DESC)[1:3] "
            "FROM messages GROUP BY service, since",
        },
        {"rates": ("service", "since", "lines", "errors", "rate"), "top": ("service", "since", "messages")},
        _LOGS,
    ),
    "metrics": Example(
        {"measurements": "host VARCHAR, metric VARCHAR, value DOUBLE"},
        _fields("host", "metric", "value"),
        {
            "minutes": f"SELECT host, metric, {_time('minute')}, samples, least, most, total FROM minutes",
            "hours": f"SELECT host, metric, {_time('(minute // 3600000) * 3600000')} AS hour, sum(samples)::BIGINT, "
            "min(least), max(most), sum(total) / sum(samples) FROM minutes "
            "WHERE (minute // 3600000 + 1) * 3600000 <= (SELECT max(minute) - 3600000 FROM minutes) "
            "GROUP BY host, metric, hour",
        },
        {
            "minutes": ("host", "metric", "minute", "samples", "least", "most", "total"),
            "hours": ("host", "metric", "hour", "samples", "least", "most", "average"),
        },
        _METRICS,
    ),
    "routing": Example(
        {"notifications": "id BIGINT, channel VARCHAR, recipient VARCHAR, text VARCHAR, urgent BOOLEAN"},
        _notification,
        {
            "by_channel": "SELECT id, channel, recipient, text, urgent FROM notifications",
            "urgent": "SELECT id, channel, recipient, text FROM notifications WHERE urgent",
        },
        {
            "by_channel": ("id", "channel", "recipient", "text", "urgent"),
            "urgent": ("id", "channel", "recipient", "text"),
        },
    ),
}  # fmt: skip
