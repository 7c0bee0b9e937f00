"""The sink for documents in Elasticsearch, through `_bulk`.

The `_id` of a document is its row's key or, without a key, the position of the record that the row comes from: topic,
partition and offset. So a repeated batch writes the same documents. A batch does not appear at once: readers see
documents as they are written. Executors write; rows with the same key are in one task, in order.

The response to a bulk request has a result for each document. A document that the index rejects (text where its mapping
has a number) is refused. One for which the server has no capacity at the moment (429, 503) is sent again. If that does
not help, the server counts as unavailable, and the batch is repeated later.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.pipelines.sinks.destination import ORIGIN, Destination, Refused, Sink, SinkUnavailable, judged
from penstock.pipelines.sinks.shaping import as_json, in_order_by
from penstock.pipelines.sinks.tasks import Receipt, Task, run_tasks
from penstock.pipelines.spec.options import SINK_OPTIONS
from penstock.pipelines.spec.problems import PipelineFailed, nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

OPTIONS = SINK_OPTIONS["elasticsearch"].names
_ID, _DOCUMENT = "id", "document"
_BULK_BYTES = 4 * 1024 * 1024
_BULK_DOCUMENTS = 2000
_BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_FOR_A_WHILE = (408, 429, 502, 503, 504)


class ElasticsearchSink(Sink):
    wants_origin = True

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._client = client_options(destination)

    def write(self, frame: DataFrame, batch: int) -> Sequence[Refused]:
        from pyspark.sql import functions as f

        to = self.destination
        if not to.key and ORIGIN not in frame.columns:
            raise PipelineFailed(
                f'sink "{to.sink}": its rows have no records of their own; say by "key" which is which'
            )
        ordered = in_order_by(frame, to.key) if to.key else frame
        origin = f.col(ORIGIN) if ORIGIN in frame.columns else f.lit(None).cast("string")
        rows = ordered.select(
            (_identity(to.key) if to.key else origin).alias(_ID), as_json(frame).alias(_DOCUMENT), origin.alias(ORIGIN)
        )
        receipts = run_tasks(rows, partial(write_bulk, self._client, to.sink, to.table, _BACKOFF_S))
        return judged([each for receipt in receipts for each in receipt.refused], to)


def client_options(destination: Destination) -> dict[str, Any]:
    """The options in the client's form."""
    given = destination.options
    for name in given:
        if name not in OPTIONS:
            raise PipelineFailed(f'sink "{destination.sink}": no option "{name}"; {nearest(name, OPTIONS)}')
    made: dict[str, Any] = {"hosts": [each.strip() for each in given.get("hosts", "http://127.0.0.1:9200").split(",")]}
    if "api_key" in given:
        made["api_key"] = given["api_key"]
    if "username" in given:
        made["basic_auth"] = (given["username"], given.get("password", ""))
    if "ca_certs" in given:
        made["ca_certs"] = given["ca_certs"]
    if "verify_certs" in given:
        made["verify_certs"] = given["verify_certs"].lower() != "false"
    return made


@dataclass(frozen=True, slots=True)
class Document:
    id: str
    text: str
    origin: str | None

    @property
    def lines(self) -> list[str]:
        return [json.dumps({"index": {"_id": self.id}}), self.text]


def write_bulk(
    client: Mapping[str, Any],
    sink: str,
    index: str,
    backoff_seconds: Sequence[float],
    task: Task,
    batches: Iterator[pa.RecordBatch],
) -> Receipt:
    """Runs in an executor."""
    from elasticsearch import Elasticsearch

    receipt = Receipt()
    made: Any = Elasticsearch(**client, max_retries=0, request_timeout=60)
    with _reached(sink), made as server:
        for documents in _bulks(batches, receipt):
            waiting = documents
            for pause in (0.0, *backoff_seconds):
                time.sleep(pause)
                answer = server.bulk(index=index, operations=[line for each in waiting for line in each.lines])
                waiting, reason = sorted_out(waiting, answer, receipt)
                if not waiting:
                    break
            else:
                raise SinkUnavailable(f'sink "{sink}": Elasticsearch: {reason}')
    return receipt


def sorted_out(sent: Sequence[Document], answer: Mapping[str, Any], receipt: Receipt) -> tuple[list[Document], str]:
    """Sorts the results of one bulk request: refused documents go into the receipt; returns those to send again, with
    the reason."""
    again, why = [], ""
    for document, item in zip(sent, answer["items"], strict=True):
        outcome = item["index"]
        if outcome["status"] < 300:
            continue
        reason = _reason(outcome)
        if outcome["status"] in _FOR_A_WHILE:
            again.append(document)
            why = reason
        else:
            receipt.refuse(reason, document.origin)
    return again, why


def _bulks(batches: Iterator[pa.RecordBatch], receipt: Receipt) -> Iterator[list[Document]]:
    """Groups of a limited number of documents and bytes. Of documents with the same id only the last is sent, in its
    place."""
    bulk: dict[str, Document] = {}
    size = 0
    for batch in batches:
        receipt.rows += batch.num_rows
        for id_, text, origin in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if id_ is None:
                receipt.refuse("its key is NULL", origin)
                continue
            bulk[id_] = Document(id_, text, origin)
            size += len(text)
            if len(bulk) >= _BULK_DOCUMENTS or size >= _BULK_BYTES:
                yield list(bulk.values())
                bulk, size = {}, 0
    if bulk:
        yield list(bulk.values())


@contextmanager
def _reached(sink: str) -> Iterator[None]:
    from elasticsearch import ApiError, TransportError

    try:
        yield
    except ApiError as error:
        said = f"{error.status_code} {error.message}"
        if error.status_code in _FOR_A_WHILE:
            raise SinkUnavailable(f'sink "{sink}": Elasticsearch: {said}') from error
        raise PipelineFailed(f'sink "{sink}": Elasticsearch: {said}') from error
    except TransportError as error:
        raise SinkUnavailable(f'sink "{sink}": Elasticsearch: {error.message}') from error


def _reason(outcome: Mapping[str, Any]) -> str:
    error = outcome.get("error") or {}
    caused = error.get("caused_by") or {}
    return ": ".join(filter(None, (error.get("reason") or f"status {outcome['status']}", caused.get("reason"))))


def _identity(key: tuple[str, ...]) -> Column:
    """A single column unchanged; several as a list, so that different keys never look the same. NULL if one is."""
    from pyspark.sql import functions as f

    columns = [f.col(f"`{name}`").cast("string") for name in key]
    if len(columns) == 1:
        return columns[0]
    return f.when(f.concat(*columns).isNotNull(), f.to_json(f.array(*columns)))
