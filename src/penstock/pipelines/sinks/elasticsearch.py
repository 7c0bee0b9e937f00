"""The sink for documents in Elasticsearch or OpenSearch, through `_bulk`.

The `_id` of a document is its row's key or, without a key, the position of the record that the row comes from: topic,
partition and offset. So a repeated batch writes the same documents. A batch does not appear at once: readers see
documents as they are written. Executors write; rows with the same key are in one task, in order.

The requests go through the transport of Elasticsearch's client, not through the client itself. The client demands a
server of its own major version or the next, and refuses OpenSearch; `_bulk` has been the same for all of them.

The response to a bulk request has a result for each document. A document that the index rejects (text where its mapping
has a number) is refused. One for which the server has no capacity at the moment (429, 503) is sent again. If that does
not help, the server counts as unavailable, and the batch is repeated later. Any other error is not about the document
(the index does not exist and may not be created, the user may not write it), and ends the run.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from penstock.pipelines.sinks.destination import ORIGIN, Destination, Refused, Sink, SinkUnavailable, judged
from penstock.pipelines.sinks.shaping import as_json, in_order_by
from penstock.pipelines.sinks.tasks import Receipt, Task, run_tasks
from penstock.pipelines.spec.problems import PipelineFailed, nearest
from penstock.pipelines.spec.sink_formats import option_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

OPTIONS = option_names("elasticsearch")
_ID, _DOCUMENT = "id", "document"
_BULK_BYTES = 4 * 1024 * 1024
_BULK_DOCUMENTS = 2000
_BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_FOR_A_WHILE = (408, 429, 502, 503, 504)
_BAD_REQUEST = 400
_NOT_THE_DOCUMENT = ("invalid_index_name_exception",)
_ID_BYTES_MAX = 512
_REQUEST_S = 60.0
_SAID_MAX = 500


class ElasticsearchSink(Sink):
    wants_origin = True

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._connection = connection_of(destination)

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
        receipts = run_tasks(rows, partial(write_bulk, self._connection, to.sink, to.table, _BACKOFF_S))
        return judged([each for receipt in receipts for each in receipt.refused], to)


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the server is, and who we are there. It is pickled, so it holds plain values only."""

    hosts: tuple[str, ...]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def transport(self) -> Iterator[Any]:
        from elastic_transport import NodeConfig, Transport
        from elastic_transport.client_utils import url_to_node_config

        nodes: list[NodeConfig] = []
        for host in self.hosts:
            node = url_to_node_config(host, use_default_ports_for_scheme=True)
            nodes.append(dataclasses.replace(node, **(self.tls if node.scheme == "https" else {})))
        made = Transport(nodes, max_retries=len(nodes) - 1, retry_on_timeout=True, meta_header=False)
        try:
            yield made
        finally:
            made.close()


def connection_of(destination: Destination) -> Connection:
    given = destination.options
    for name in given:
        if name not in OPTIONS:
            raise PipelineFailed(f'sink "{destination.sink}": no option "{name}"; {nearest(name, OPTIONS)}')
    hosts = tuple(each.strip() for each in given.get("hosts", "http://127.0.0.1:9200").split(","))
    for host in hosts:
        if not host.startswith(("http://", "https://")):
            raise PipelineFailed(f'sink "{destination.sink}": "hosts" has "{host}", without http:// or https://')
    headers: dict[str, str] = {}
    if "api_key" in given:
        headers["authorization"] = f"ApiKey {given['api_key']}"
    elif "username" in given:
        pair = f"{given['username']}:{given.get('password', '')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    tls: dict[str, Any] = {}
    if "ca_certs" in given:
        tls["ca_certs"] = given["ca_certs"]
    if given.get("verify_certs", "true").lower() == "false":
        tls |= {"verify_certs": False, "ssl_show_warn": False}
    return Connection(hosts, headers, tls)


@dataclass(frozen=True, slots=True)
class Document:
    id: str
    text: str
    origin: str | None

    @property
    def lines(self) -> list[str]:
        return [json.dumps({"index": {"_id": self.id}}), self.text]


def write_bulk(
    connection: Connection,
    sink: str,
    index: str,
    backoff_seconds: Sequence[float],
    task: Task,
    batches: Iterator[pa.RecordBatch],
) -> Receipt:
    """Runs in an executor."""
    receipt = Receipt()
    with connection.transport() as server:
        for documents in _bulks(batches, receipt):
            waiting = documents
            for pause in (0.0, *backoff_seconds):
                time.sleep(pause)
                answer = _sent(server, connection, sink, index, waiting)
                waiting, reason = sorted_out(waiting, answer, receipt, sink)
                if not waiting:
                    break
            else:
                raise SinkUnavailable(f'sink "{sink}": Elasticsearch: {reason}')
    return receipt


def sorted_out(
    sent: Sequence[Document], answer: Mapping[str, Any], receipt: Receipt, sink: str
) -> tuple[list[Document], str]:
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
        elif outcome["status"] == _BAD_REQUEST and (outcome.get("error") or {}).get("type") not in _NOT_THE_DOCUMENT:
            receipt.refuse(reason, document.origin)
        else:
            raise PipelineFailed(f'sink "{sink}": Elasticsearch: {outcome["status"]} {reason}')
    return again, why


def _bulks(batches: Iterator[pa.RecordBatch], receipt: Receipt) -> Iterator[list[Document]]:
    """Groups of a limited number of documents and bytes. Of documents with the same id only the last is sent, in its
    place."""
    bulk: dict[str, Document] = {}
    size = 0
    for batch in batches:
        receipt.rows += batch.num_rows
        for id_, text, origin in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if why := _no_id(id_):
                receipt.refuse(why, origin)
                continue
            bulk[id_] = Document(id_, text, origin)
            size += len(text)
            if len(bulk) >= _BULK_DOCUMENTS or size >= _BULK_BYTES:
                yield list(bulk.values())
                bulk, size = {}, 0
    if bulk:
        yield list(bulk.values())


def _no_id(key: str | None) -> str:
    """Why the server would refuse the key; for one that is too long, it would refuse the whole request."""
    if key is None:
        return "its key is NULL"
    size = len(key.encode())
    return f"its key has {size} bytes, more than the {_ID_BYTES_MAX} of an _id" if size > _ID_BYTES_MAX else ""


def _sent(
    server: Any, connection: Connection, sink: str, index: str, documents: Sequence[Document]
) -> Mapping[str, Any]:
    """The results of a bulk request."""
    from elastic_transport import TlsError, TransportError

    lines = [line for each in documents for line in each.lines]
    body = ("\n".join(lines) + "\n").encode()
    headers = {"content-type": "application/x-ndjson", "accept": "application/json", **connection.headers}
    target = f"/{quote(index, safe='')}/_bulk"
    try:
        answer = server.perform_request("POST", target, body=body, headers=headers, request_timeout=_REQUEST_S)
    except TlsError as error:
        raise PipelineFailed(f'sink "{sink}": Elasticsearch: {error.message}') from error
    except TransportError as error:
        raise SinkUnavailable(f'sink "{sink}": Elasticsearch: {error.message}') from error
    status = answer.meta.status
    if status >= 300:
        said = answer.body.get("error", answer.body) if isinstance(answer.body, Mapping) else answer.body
        reason = _reason({"status": status, "error": said}) if isinstance(said, Mapping) else said
        kind = SinkUnavailable if status in _FOR_A_WHILE else PipelineFailed
        raise kind(f'sink "{sink}": Elasticsearch: {status} {str(reason)[:_SAID_MAX]}')
    return cast("Mapping[str, Any]", answer.body)


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
