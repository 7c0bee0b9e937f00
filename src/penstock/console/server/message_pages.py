"""The page of messages: its form, the stream that fills it, one record, exports.

All tabs that follow the same topic with the same filters share one reader, and get the same bytes.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response, StreamingResponse

from penstock.client.errors import ClientError
from penstock.console.pages import messages
from penstock.console.pages.layout import Page, Part
from penstock.console.pages.topics import topic_tabs
from penstock.console.server.cluster_pages import TOPICS, topic_of
from penstock.console.server.streams import event, event_stream, stepped
from penstock.console.server.visit import NotFound, Visit
from penstock.console.views.query import Query, parse_query
from penstock.console.views.records import Done, Event, Found, Progress, Row
from penstock.model.errors import KafkaError

FOLLOWED_MAX = 32
BROWSED_MAX = 16
SEARCHES_MAX = 4
"""At once, of those with filters: each may read a whole topic, with some 40 MB of memory."""
_QUEUE_MAX = 64
_PARQUET_ROWS = 20_000


async def page(visit: Visit) -> Page:
    view = await topic_of(visit)
    query = parse_query(visit.parameters)
    parts = [
        Part("tabs", topic_tabs(view.name, "messages")),
        Part("query", messages.query_form(view.name, len(view.partitions), query)),
        Part("results", messages.results(view.name, query)),
    ]
    return Page(view.name, "topics", parts, [TOPICS])


async def record(visit: Visit) -> Page:
    name, row = await _one(visit)
    content = messages.record(row, visit.schema)
    crumbs = [TOPICS, (name, messages.path_of(name))]
    return Page(f"{row.partition}:{row.offset}", "topics", [Part("one", content)], crumbs)


async def raw(visit: Visit) -> Response:
    """The bytes of a value, as a file: a browser never shows them."""
    name, row = await _one(visit)
    if row.value is None:
        raise NotFound("The value is null.")
    file = f"{name}-{row.partition}-{row.offset}.bin"
    return Response(
        row.value,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{file}"'},
    )


async def _one(visit: Visit) -> tuple[str, Row]:
    name = (await topic_of(visit)).name
    reader = visit.reader(name)
    partition, offset = int(visit.path["partition"]), int(visit.path["offset"])
    return name, await visit.workspace.ask(lambda _: reader.one(partition, offset))


class MessageStreams:
    """The searches and the followed topics of a console."""

    def __init__(self) -> None:
        self._browsed = asyncio.Semaphore(BROWSED_MAX)
        self._searches = asyncio.Semaphore(SEARCHES_MAX)
        self._followed: dict[tuple[Any, ...], _Followed] = {}

    async def stream(self, visit: Visit) -> Response:
        name = (await topic_of(visit)).name
        query = parse_query(visit.parameters)
        return event_stream(self._follow(visit, name, query) if query.follow else self._search(visit, name, query))

    def close(self) -> None:
        for followed in self._followed.values():
            followed.stop()

    async def _search(self, visit: Visit, name: str, query: Query) -> AsyncIterator[bytes]:
        found, stopped = 0, False
        reads, limit = (self._searches, SEARCHES_MAX) if query.is_filtered else (self._browsed, BROWSED_MAX)
        if reads.locked():
            yield event("problem", f"{limit} other searches are running; this one waits for its turn.")
        async with reads:
            searching = visit.reader(name).search(query, query.limit, lambda: stopped or visit.is_over())
            steps = stepped(searching, visit.workspace.access)
            try:
                async for each in steps:
                    if isinstance(each, Done):
                        done = {
                            "text": messages.done_text(each, query, query.limit),
                            "complete": each.complete,
                            "empty": "" if found else messages.nothing(query, each.total),
                        }
                        yield event("done", done)
                    else:
                        found += len(each.rows) if isinstance(each, Found) else 0
                        yield _encoded_event(each, visit, follow=False)
            except (ClientError, KafkaError) as error:
                yield event("failed", str(error))
            finally:
                stopped = True
                await steps.aclose()

    async def _follow(self, visit: Visit, name: str, query: Query) -> AsyncIterator[bytes]:
        key = (visit.workspace, name, tuple(sorted(query.parameters().items())))
        followed = self._followed.get(key)
        if followed is None:
            if len(self._followed) >= FOLLOWED_MAX:
                yield event(
                    "failed", f"{FOLLOWED_MAX} other topics are being followed: close some of those tabs first."
                )
                return
            followed = self._followed[key] = _Followed(visit, name, query)
        queue = followed.join()
        try:
            while (encoded := await queue.get()) is not None and not visit.is_over():
                yield encoded
        finally:
            if not followed.leave(queue):
                followed.stop()
                if self._followed.get(key) is followed:
                    del self._followed[key]


class _Followed:
    """One topic that is followed, for any number of tabs. A tab that is too slow misses records."""

    def __init__(self, visit: Visit, name: str, query: Query) -> None:
        self._queues: set[asyncio.Queue[bytes | None]] = set()
        self._stopped = False
        self._last = event("progress", {"text": "following", "share": None})
        self._task = asyncio.create_task(self._run(visit, name, query))

    def join(self) -> asyncio.Queue[bytes | None]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE_MAX)
        self._queues.add(queue)
        queue.put_nowait(self._last)
        return queue

    def leave(self, queue: asyncio.Queue[bytes | None]) -> int:
        self._queues.discard(queue)
        return len(self._queues)

    def stop(self) -> None:
        self._stopped = True
        self._tell(None)

    def _tell(self, encoded: bytes | None) -> None:
        for queue in self._queues:
            if queue.full() and encoded is None:
                queue.get_nowait()
            if not queue.full():
                queue.put_nowait(encoded)

    async def _run(self, visit: Visit, name: str, query: Query) -> None:
        try:
            following = visit.reader(name).follow(query, lambda: self._stopped)
            async for each in stepped(following, visit.workspace.access):
                encoded = _encoded_event(each, visit, follow=True)
                if isinstance(each, Progress):
                    self._last = encoded
                self._tell(encoded)
        except (ClientError, KafkaError) as error:
            self._tell(event("failed", str(error)))
        self._tell(None)


def _encoded_event(each: Event, visit: Visit, *, follow: bool) -> bytes:
    if isinstance(each, Found):
        return event("rows", messages.rows(each.rows, visit.schema))
    assert isinstance(each, Progress)
    share = None if follow else each.searched / max(1, each.total)
    return event("progress", {"text": messages.progress_text(each, follow), "share": share})


# -- Exports.


async def export(visit: Visit) -> Response:
    """Every record that matches, not only those that the page shows."""
    name = (await topic_of(visit)).name
    query = parse_query({**visit.parameters, "follow": ""})
    kind = visit.parameters.get("format", "")
    if kind not in messages.EXPORTS:
        raise NotFound(f"There is no export as {kind!r}.")
    reader = visit.reader(name)
    access = visit.workspace.access
    rows = _all_rows(reader.search(query, None, visit.is_over))
    headers = {"content-disposition": f'attachment; filename="{name}.{kind}"'}
    if kind == "parquet":
        path = await visit.workspace.ask(lambda _: _write_parquet(rows))
        return FileResponse(
            path,
            media_type="application/vnd.apache.parquet",
            headers=headers,
            background=BackgroundTask(os.unlink, path),
        )
    if kind == "jsonl":
        lines = (
            "".join(
                json.dumps(messages.export_entry(row, visit.schema), ensure_ascii=False) + "\n" for row in some
            ).encode(errors="replace")
            for some in rows
        )
        return StreamingResponse(stepped(lines, access), media_type="application/x-ndjson", headers=headers)
    return StreamingResponse(stepped(_csv(rows, visit), access), media_type="text/csv; charset=utf-8", headers=headers)


def _all_rows(events: Iterator[Event]) -> Iterator[list[Row]]:
    for each in events:
        if isinstance(each, Found):
            yield each.rows


def _csv(rows: Iterator[list[Row]], visit: Visit) -> Iterator[bytes]:
    yield b"topic,partition,offset,timestamp,key,value,headers\r\n"
    for some in rows:
        text = io.StringIO()
        writer = csv.writer(text)
        for row in some:
            entry = messages.export_entry(row, visit.schema)
            writer.writerow(
                [
                    *(entry[name] for name in ("topic", "partition", "offset", "timestamp")),
                    *map(_cell, (entry["key"], entry["value"])),
                    json.dumps(entry["headers"]),
                ]
            )
        yield text.getvalue().encode(errors="replace")


def _cell(value: object) -> str:
    """A spreadsheet takes text that begins like this for a formula, and would run it."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _write_parquet(rows: Iterator[list[Row]]) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    descriptor, path = tempfile.mkstemp(prefix="penstock-export-", suffix=".parquet")
    os.close(descriptor)
    with pq.ParquetWriter(path, schema) as writer:
        pending: list[Row] = []
        for some in rows:
            pending += some
            if len(pending) >= _PARQUET_ROWS:
                writer.write_table(_table(pending, schema))
                pending = []
        writer.write_table(_table(pending, schema))
    return path


def _table(rows: list[Row], schema: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(
        [
            {
                "topic": row.topic,
                "partition": row.partition,
                "offset": row.offset,
                "timestamp": int(row.timestamp_ms),
                "key": row.key,
                "value": row.value,
                "headers": [{"key": name, "value": value} for name, value in row.headers],
            }
            for row in rows
        ],
        schema,
    )
